"""Check a captured step without running it: its operators, types, shapes and gradients; the results are findings."""
