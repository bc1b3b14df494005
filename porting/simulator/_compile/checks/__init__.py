"""Checks of a captured graph: they refuse what a device would refuse."""
