"""This module measures the peak memory of some work: of the whole process, and of torch's tensors alone.

Child processes use it, one for each side.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from porting.engines.calls.freed_memory import return_freed_memory
from porting.support.process import find_file_bytes, find_peak_bytes

__all__ = ["OwnPeak", "TensorPeak", "find_own_peak", "find_tensor_peak"]

_Prepared = TypeVar("_Prepared")
_BEGINNING = "porting: the work begins"


class OwnPeak(NamedTuple):
    """`peak_bytes` are beyond what the process had before, `process_peak_bytes` those of the whole process.

    None where the system does not tell.
    """

    peak_bytes: Optional[int]
    process_peak_bytes: Optional[int]


class TensorPeak(NamedTuple):
    """The peak of torch's allocator beyond what was allocated before; None where torch does not tell."""

    tensor_bytes: Optional[int]


def find_own_peak(work: Callable[[], Any]) -> OwnPeak:
    """Do the work, and return the memory that it added to the process: tensors, buffers of libraries, and modules.

    File-backed pages are left out where the system tells them apart: they are the code of libraries, which processes
    share and the system drops when memory runs short.
    """
    whole = find_peak_bytes() or 0
    # What was freed before would hide what is taken now; it differs between processes that did the same.
    gc.collect()
    return_freed_memory()
    with suppress(OSError):
        # forget the peak up to now, where the system can do that
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before, files_before = find_peak_bytes(), find_file_bytes()
    work()
    # at the peak there may have been fewer: the last steps, which are like those before, run no new code
    peak, files = find_peak_bytes(), find_file_bytes()
    if peak is None or before is None:
        return OwnPeak(None, None)
    return OwnPeak(max(0, peak - files - (before - files_before)), max(whole, peak))


def find_tensor_peak(work: Callable[[_Prepared], Any], *, prepare: Callable[[], _Prepared]) -> TensorPeak:
    """Do the work on what `prepare` returns under torch's profiler, and add up what its allocator gives and takes back.

    What is prepared counts as there before; what the work gives back of it makes room. Memory that libraries take for
    themselves is not in it, and neither is what the C library keeps; so the figure is the same in each run.

    >>> import torch
    >>> find_tensor_peak(lambda ones: ones + torch.zeros(1024), prepare=lambda: torch.ones(1024)).tensor_bytes
    8192
    """
    from torch.autograd.profiler import profile, record_function

    # the profiler does not know the size of a tensor that was there when it began
    with profile(profile_memory=True) as profiler:
        prepared = prepare()
        with record_function(_BEGINNING):
            work(prepared)
    recorded: Any = profiler.kineto_results
    events = [] if recorded is None else list(recorded.events())
    # newer versions of torch count in nanoseconds
    began = "start_ns" if events and hasattr(events[0], "start_ns") else "start_us"
    beginning = [getattr(event, began)() for event in events if event.name() == _BEGINNING]
    memory = [(getattr(event, began)(), event.nbytes()) for event in events if event.name() == "[memory]"]
    if not memory or not beginning:
        return TensorPeak(None)
    level = peak = 0
    for moment, num_bytes in sorted(memory, key=itemgetter(0)):
        if moment >= beginning[0]:
            level += num_bytes
            peak = max(peak, level)
    return TensorPeak(peak)
