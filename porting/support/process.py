"""Describe this process: which of several it is, its usable cores, its processor time and memory, and how it exits."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

__all__ = [
    "Instance",
    "find_file_bytes",
    "find_peak_bytes",
    "leave_group_at_exit",
    "signal_descendants",
    "signal_with_parent",
    "this_instance",
    "usable_cores",
    "used_cpu_seconds",
]

# who starts processes tells each which one it is and how many there are, altogether and on its machine
_LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Instance:
    """One of `size` processes, of which `local_size` are on this machine; both indices count from 0."""

    index: int
    size: int
    local_index: int
    local_size: int


def this_instance() -> Instance:
    """Read which process this is from the environment: that of MPI (and poprun) or torchrun's; or a single one.

    >>> this_instance()
    Instance(index=0, size=1, local_index=0, local_size=1)
    """
    for index, size, local_index, local_size in _LAUNCHERS:
        if os.environ.get(index, "").isdigit() and os.environ.get(size, "").isdigit():
            numbers = int(os.environ[index]), int(os.environ[size])
            local = int(os.environ.get(local_index, numbers[0])), int(os.environ.get(local_size, numbers[1]))
            return Instance(*numbers, *local)
    return Instance(0, 1, 0, 1)


def usable_cores() -> int:
    """Return how many cores this process may run on: fewer than the machine has where it is bound to some.

    >>> usable_cores() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def used_cpu_seconds() -> float:
    """Return the processor time of this process and of its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def find_peak_bytes(*, of_children: bool = False) -> Optional[int]:
    """Return the peak memory of this process, or of any of its children; None where the system does not report it."""
    # Linux tells the peak of this program alone here, below that of the one that started it
    own = None if of_children else _read_status("VmHWM")
    if own is not None:
        return own
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_CHILDREN if of_children else resource.RUSAGE_SELF).ru_maxrss
    # bytes on macOS, kilobytes elsewhere
    return (peak if sys.platform == "darwin" else peak * 1024) or None


def find_file_bytes() -> int:
    """Return the bytes of this process's memory that are pages of files, such as libraries; 0 where unknown."""
    return _read_status("RssFile") or 0


def _read_status(name: str) -> Optional[int]:
    """Read a figure of Linux's, in bytes; None elsewhere."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition(f"{name}:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def signal_with_parent(number: int) -> None:
    """Let the system send this process a signal when its parent has ended; only Linux supports that.

    A stopped process gets it, too, and also if the parent was killed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)


def signal_descendants(pid: int, number: int) -> None:
    """Send a signal to a process's children and their children; no effect where the system does not list them."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, children.read_text(encoding="ascii").split()):
                # before its children: one that is to stop starts no further ones then
                with suppress(ProcessLookupError):
                    os.kill(child, number)
                signal_descendants(child, number)


def leave_group_at_exit() -> None:
    """Let the process leave torch's process group when it ends, with or without an error, unless it has by then.

    Gloo's threads are still at work otherwise while the interpreter goes, and now and then that ends in an abort, whose
    status would stand for the error's.
    """

    def leave() -> None:
        from torch import distributed

        if distributed.is_initialized():
            distributed.destroy_process_group()
        # cycles of Python's objects may keep the group, also one that the program has left, and its threads end with it
        gc.collect()

    atexit.register(leave)
