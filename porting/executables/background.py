"""Look for the fastest engine in a process of low priority while a training goes on.

The process gets the step as a file, with the weights and a batch of that moment, and keeps what it has chosen in the
store, under the key that the training asks for. Nothing of the training is shared with it: a compiler that crashes, a
full disk or the end of the program leave the training as it is, and nothing behind.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Generic, List, Optional, Sequence, TypeVar

import torch

from .. import executables
from ..capture import StepGraph
from ..diagnostics import Finding, PortingError
from ..engines.calls.device_state import DeviceState
from ..engines.calls.executable import BuildRequest
from ..engines.contract.limits import TuningLimits
from ..support.bound_process import BoundProcess, find_free_memory
from ..support.process import usable_cores

__all__ = ["STEP", "BackgroundTuning"]

STEP = "step"
"""The file of the step, in the folder of the process."""

# A training that ends sooner gains nothing by a compiler: a test, a script that is tried out, an evaluation.
_START_SECONDS = 5.0
_LOOK_SECONDS = 0.25
# A process that gets only what others leave takes longer, and nobody waits for it.
_MORE_TIME = 5.0
# Beside a training on all cores it gets this share of the time, in turns in which the training stands still. On one
# core with a thread of OpenMP it would cost much more: the other threads spin until that one is done.
_SHARE_OF_TURNS = 0.05
_LEAST_TURN_SECONDS, _MOST_TURN_SECONDS = 0.1, 2.0
# a training on one thread is no such case, and measured times are not exact
_SHARE_OF_A_CORE = 0.1
# Beside its copy of the step, which parity and measuring take several times, it has a compiler.
_NUM_COPIES = 8
_COMPILER_BYTES = 2 << 30
_SPARE_DISK_BYTES = 1 << 30

_Found = TypeVar("_Found")


class BackgroundTuning(Generic[_Found]):
    """Looks for the fastest engine of one step; `find` returns what it has left in the store.

    `cache_dir` is the store's folder, `seconds` what a tuning takes that somebody waits for. `report` gets a note E012
    if nothing was looked for, and why. One is at work at a time in a process: others wait for their turn.
    """

    _at_work: Optional[weakref.ref[BackgroundTuning[Any]]] = None

    def __init__(
        self,
        graph: StepGraph,
        request: BuildRequest,
        *,
        find: Callable[[], Optional[_Found]],
        cache_dir: Path,
        seconds: float,
        model: str = "",
        report: Callable[[Finding], None] = lambda _finding: None,
    ) -> None:
        """Start nothing yet; the training begins with the first `look`."""
        self.is_over = False
        self._graph = graph
        self._request = request
        self._find = find
        self._cache_dir = cache_dir
        self._seconds = seconds
        self._model = model
        self._report = report
        self._process: Optional[BoundProcess] = None
        self._began: Optional[_Moment] = None
        self._next_look = 0.0
        # when its last turn ended; None where it needs no turns
        self._last_turn: Optional[float] = None
        self._end_process: Callable[[], Any] = lambda: None

    def __deepcopy__(self, _memo: object) -> BackgroundTuning[_Found]:
        # a copy of a training begins anew, and the process belongs to this one
        return BackgroundTuning(
            self._graph,
            self._request,
            find=self._find,
            cache_dir=self._cache_dir,
            seconds=self._seconds,
            model=self._model,
            report=self._report,
        )

    def look(self, state: DeviceState, inputs: Sequence[torch.Tensor]) -> Optional[_Found]:
        """Start when the training has lasted for some seconds; return what was found, once; to be called between calls.

        `state` and `inputs` are those of the next call. Whatever goes wrong is reported, and never raised.
        """
        now = time.perf_counter()
        if self._began is None:
            self._began = _Moment.of_now()
            self._next_look = now + _START_SECONDS
        if now < self._next_look or self.is_over:
            return None
        self._next_look = now + _LOOK_SECONDS
        if self._process is None:
            self._start_in_turn(state, inputs)
            return None
        if self._last_turn is not None:
            self._give_turn(self._process, now - self._last_turn)
        return self._take_result() if self._process.has_ended() else None

    def stop(self) -> None:
        """End what runs; nothing is looked for any more."""
        self.is_over = True
        self._end_process()

    # -- starting ------------------------------------------------------------------------------------------------------

    def _start_in_turn(self, state: DeviceState, inputs: Sequence[torch.Tensor]) -> None:
        other = BackgroundTuning._at_work() if BackgroundTuning._at_work is not None else None
        if other is not None and not other.is_over:
            return
        try:
            reason = _why_not_now(state, inputs)
            if reason:
                self._give_up(reason)
                return
            self._start(state, inputs)
            BackgroundTuning._at_work = weakref.ref(self)
        except (OSError, PortingError) as error:
            self._give_up(str(error).splitlines()[0])

    def _start(self, state: DeviceState, inputs: Sequence[torch.Tensor]) -> None:
        assert self._began is not None
        if self._began.count_cores_since() > max(1, usable_cores() - 1) + _SHARE_OF_A_CORE:
            self._last_turn = self._began.clock
        slowness = _MORE_TIME / (1.0 if self._last_turn is None else _SHARE_OF_TURNS)
        process = BoundProcess(
            "porting.exports.compiling:compile_in_background",
            {
                "cache_dir": str(self._cache_dir.absolute()),
                "seconds": self._seconds * slowness,
                "measuring_seconds": TuningLimits().measuring_seconds * slowness,
                # executables are for a number of threads, and for what torch may round and reorder
                "num_threads": torch.get_num_threads(),
                "matmul_precision": torch.get_float32_matmul_precision(),
            },
            is_idle=True,
        )
        # also where nobody holds this any more, and at the end of the program
        self._end_process = weakref.finalize(self, process.end)
        rows = max([1, *(tensor.shape[0] for tensor in inputs if tensor.dim())])
        values = {name: state.read_value(name) for name in state.names}
        step = executables.ExportedStep(
            self._graph,
            self._request,
            executables.BatchRecord(rows, 1, 1, 1, rows, ""),
            model=self._model,
            inputs=tuple(inputs),
            values=values,
        )
        step.save(process.folder / STEP)
        process.start()
        self._process = process

    def _give_turn(self, process: BoundProcess, since_last: float) -> None:
        """Let the process run for its share of the time since its last turn, while the training stands still."""
        seconds = min(since_last * _SHARE_OF_TURNS, _MOST_TURN_SECONDS)
        if seconds < _LEAST_TURN_SECONDS:
            return
        process.resume()
        try:
            process.wait(seconds)
        finally:
            process.pause()
            self._last_turn = time.perf_counter()

    def _take_result(self) -> Optional[_Found]:
        """Return what the process has left; report why if that is nothing."""
        assert self._process is not None
        error = self._process.read_error()
        self.stop()
        if error != "":
            self._give_up("the compiling process died" if error is None else error)
            return None
        found = self._find()
        if found is None:
            self._give_up("nothing was kept in the folder of executables")
        return found

    def _give_up(self, reason: str) -> None:
        self.stop()
        self._report(
            Finding(
                "E012",
                message=f"no faster engine was looked for: {reason}",
                notes="the training goes on as it began",
                help="`ported.compile(*batch)` with `PortOptions(engine='auto')` looks for one before the training",
            )
        )


@dataclass(frozen=True)
class _Moment:
    """A moment by the clock, and the processor time of this program until then, in seconds."""

    clock: float
    processor: float

    @classmethod
    def of_now(cls) -> _Moment:
        return cls(time.perf_counter(), time.process_time())

    def count_cores_since(self) -> float:
        """Return how many cores this program has kept busy since, on average."""
        now = _Moment.of_now()
        return (now.processor - self.processor) / max(now.clock - self.clock, 1e-9)


def _why_not_now(state: DeviceState, inputs: Sequence[torch.Tensor]) -> str:
    """Return why this machine has no room for a second process; empty if it has."""
    if torch.are_deterministic_algorithms_enabled():
        return "two runs of a deterministic program must not change engines at different steps"
    if usable_cores() == 1:
        return "there is one core, and the training needs it"
    tensors: List[torch.Tensor] = [*state.parameters.values(), *inputs]
    for named in (*state.buffers, *state.slots.values()):
        tensors += named.values()
    num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    if find_free_memory() < num_bytes * _NUM_COPIES + _COMPILER_BYTES:
        return "there is too little free memory for a compiler beside the training"
    if shutil.disk_usage(tempfile.gettempdir()).free < 2 * num_bytes + _SPARE_DISK_BYTES:
        return f"there is too little room in {tempfile.gettempdir()}"
    return "" if hasattr(os, "killpg") else "this system has no groups of processes"
