"""Blocks, names and groups that `forward` puts operators into, and what a device refuses about them."""
