"""Operators written down as they are called: the recorder of a capture, and what it is made of."""
