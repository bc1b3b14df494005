"""This package says how a call of a device is cut into micro-batches, and on which state it works.

All engines share it.
"""
