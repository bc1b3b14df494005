"""The examination of a machine: what ports need of it, expected against found, and what to do next for each."""
