"""Define the groups of options, check their values, and copy them for each executor."""
