"""Memory that a step frees stays with the process, because the next step needs it again.

The C library of Linux gives large blocks back to the system when they are freed. The next step gets them as new pages,
which the system clears and maps one by one: 5 to 20 % of the time of ordinary training steps. A device does not give
its memory back between steps either.

A program that computes values again asks for the opposite: less memory, more time. What it frees goes back at once.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

__all__ = ["give_back_what_is_freed", "keep_freed_memory", "return_freed_memory"]

# of malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_NEVER_TRIM = -1
# Variables by which the C library is told the same.
_CHOICES = frozenset(["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_TOP_PAD_"])
# The most that the C library takes: larger blocks come from the system one by one, whatever is asked for.
_LARGEST_KEPT = 32 << 20
# Where the C library begins. It moves both up as blocks are freed, unless it is told a number.
_GIVEN_BACK = 128 << 10

# Whether a program of this process saves memory: that holds to its end, for the heap is everybody's.
_saves_memory = False


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed; return whether it does.

    It is left alone where the user has told it when to give memory back, where a program of this process recomputes,
    and where it is not that of GNU. A second call changes nothing.
    """
    # Setting either threshold also ends its adaptation: the C library moves both only while nobody has chosen one.
    return not _saves_memory and _set_thresholds(mmap=_LARGEST_KEPT, trim=_NEVER_TRIM)


def give_back_what_is_freed() -> bool:
    """Tell the C library to give large blocks back when they are freed, to the end of the process.

    Returns whether it does; it is left alone where the user has told it something. A hole in its heap is lost to the
    next block of the same size: tensors begin at multiples of 64 bytes, and the library looks for a hole in which any
    beginning would do. A program that frees values early would make the heap larger by that, not smaller.
    """
    # The heap belongs to the process, so one program that saves memory decides for all others.
    global _saves_memory
    _saves_memory = True
    is_done = _set_thresholds(mmap=_GIVEN_BACK, trim=_GIVEN_BACK)
    if is_done:
        return_freed_memory()  # what was kept until now
    return is_done


def return_freed_memory() -> None:
    """Give what is free back to the system, once: after work that will not be done again."""
    library = _find_c_library()
    if library is not None:
        # The thresholds act on later calls of `free` only; what is already free has to be asked back.
        library.malloc_trim(0)


def _set_thresholds(*, mmap: int, trim: int) -> bool:
    # Who has set these has measured something. The C library reads them when the process starts.
    has_user_chosen = not _CHOICES.isdisjoint(os.environ) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    library = None if has_user_chosen else _find_c_library()
    return library is not None and bool(
        library.mallopt(_M_MMAP_THRESHOLD, mmap) and library.mallopt(_M_TRIM_THRESHOLD, trim)
    )


def _find_c_library() -> Any:
    """Return the C library where it is GNU's."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # the library that this process runs on, musl's for example, which has no such functions
        library = ctypes.CDLL(None)
    except OSError:
        return None
    needed = ("gnu_get_libc_version", "mallopt", "malloc_trim")
    return library if all(hasattr(library, name) for name in needed) else None
