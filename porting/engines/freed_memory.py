"""Memory that a step frees stays with the process, because the next step needs it again.

The C library of Linux gives large blocks back to the system when they are freed. The next step gets them as new pages,
which the system clears and maps one by one: 5 to 20 % of the time of ordinary training steps. A device does not give
its memory back between steps either.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

__all__ = ["keep_freed_memory", "return_freed_memory"]

# of malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER_TRIM = -1
# Variables by which the C library is told the same.
_CHOICES = frozenset(["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"])
# The most that the C library takes: larger blocks come from the system one by one, whatever is asked for.
_LARGEST_KEPT = 32 << 20


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed; return whether it does.

    It is left alone where the user has told it when to give memory back, and where it is not that of GNU. A second call
    changes nothing.
    """
    library = None if _has_user_chosen() else _c_library()
    if library is None:
        return False
    return bool(library.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT) and library.mallopt(_M_TRIM_THRESHOLD, _NEVER_TRIM))


def return_freed_memory() -> None:
    """Give what is free back to the system, once: after work that will not be done again."""
    library = _c_library()
    if library is not None:
        library.malloc_trim(0)


def _has_user_chosen() -> bool:
    return not _CHOICES.isdisjoint(os.environ) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")


def _c_library() -> Any:
    """Return the C library where it is GNU's."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
    except OSError:
        return None
    needed = ("gnu_get_libc_version", "mallopt", "malloc_trim")
    return library if all(hasattr(library, name) for name in needed) else None
