"""Raise an interrupt again that came while a finalizer ran, in the main thread; Python would print and forget it.

No finalizer can do that by itself: the interrupt may come before its first line.
"""

from __future__ import annotations

import _thread
import functools
import signal
import sys
import threading
import time
from typing import Any, Callable

__all__ = ["pass_on_interrupts"]

_DELAY_SECONDS = 0.02


def pass_on_interrupts() -> None:
    """Raise a KeyboardInterrupt that came in a finalizer again, soon after it; other errors are printed as before."""
    before = sys.unraisablehook
    if getattr(before, "func", None) is not _pass_on:
        sys.unraisablehook = functools.partial(_pass_on, before)


def _pass_on(before: Callable[[Any], Any], unraisable: sys.UnraisableHookArgs) -> None:
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        before(unraisable)
        return
    # at once it would be raised in this function, and be lost again
    timer = threading.Timer(_DELAY_SECONDS, _send_interrupt)
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # the interpreter ends, and nothing is left to be interrupted
        before(unraisable)


def _send_interrupt() -> None:
    while _is_in_hook(threading.main_thread().ident or 0):
        time.sleep(_DELAY_SECONDS)
    if hasattr(signal, "pthread_kill"):
        # a signal also ends what the main thread waits for
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
    else:
        _thread.interrupt_main()


def _is_in_hook(thread: int) -> bool:
    """Tell whether a thread still runs the hook, in which an interrupt would be lost once more."""
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not _pass_on.__code__:
        frame = frame.f_back
    return frame is not None
