"""Pause garbage collection while many objects are made that stay: each collection would look at all of them.

Captures and preflights use it.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import Iterator

__all__ = ["garbage_pause"]


@contextmanager
def garbage_pause() -> Iterator[None]:
    """Switch cyclic garbage collection off while the context lasts, in all threads; if it was off, it stays off.

    >>> with garbage_pause():
    ...     gc.isenabled()
    False
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
