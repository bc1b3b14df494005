"""Executables that last: compiled programs on disk, found again by everything that they depend on.

The store and what explains it need no torch, so that `porting cache` answers at once; `key` and `obtain` do.
"""
