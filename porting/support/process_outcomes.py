"""Wait for the job of a process, and say what became of it: done, failed, out of memory, or too long.

Cases of benchmarks and of sweeps are such jobs.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any, Callable, NamedTuple, Optional

from porting.support.bound_process import BoundProcess, describe_exit

__all__ = ["Outcome", "Progress", "describe_end", "wait_for_outcome"]

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0
_MEMORY_WORDS = ("can't allocate memory", "out of memory", "not enough memory", "bad_alloc", "memoryerror")
_TYPE_OF_FINDING = re.compile(r"^\w+: (?=error\[)")

Progress = Callable[[str, float], None]
"""Called with what is being done and which share of the whole is done."""


class Outcome(NamedTuple):
    """What became of a process: a status as cases have it, the reason if it failed, the result."""

    status: str
    reason: str = ""
    result: Any = None


def wait_for_outcome(
    process: BoundProcess, timeout: Optional[float] = None, progress: Progress = lambda _text, _share: None
) -> Outcome:
    """Wait for the end of a process, for at most so many seconds, and pass on what it writes into `progress`."""
    deadline = None if timeout is None else time.monotonic() + timeout
    text, share = "starting", 0.0
    while not process.wait(_POLL_SECONDS):
        with contextlib.suppress(OSError, ValueError):
            written, _, said = (process.folder / "progress").read_text(encoding="utf-8").partition(" ")
            share, text = float(written), said
        progress(text, share)
        if deadline is not None and time.monotonic() > deadline:
            process.kill()
            return Outcome("timeout", f"it ran longer than {timeout:.0f} s")
    status, error = process.kill(), process.read_error()
    if error is None:
        return Outcome("out_of_memory" if status == -9 else "failed", f"the process {describe_end(process)}")
    if error:
        # a finding says by itself what it is
        reason = _TYPE_OF_FINDING.sub("", error)
        is_memory = any(word in reason.lower() for word in _MEMORY_WORDS)
        return Outcome("out_of_memory" if is_memory else "failed", reason)
    return Outcome("done", result=process.read_returned())


def describe_end(process: BoundProcess) -> str:
    """Say how a process ended that has given no result."""
    process.wait(_GRACE_SECONDS)
    return f"ended with {describe_exit(process.kill() or 0, process.read_end_of_log())}"
