"""Examine a machine for what ports need: each probe has what is expected, what is found, and what to do next."""
