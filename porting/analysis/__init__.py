"""What a captured step says about a port: its operators, types, shapes and gradients, as findings; nothing is run."""
