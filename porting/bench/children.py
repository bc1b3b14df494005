"""Figures that need processes of their own: turns of the eager side, peak memory, and the way to the first step.

What one side asks of its process (threads, the C library's memory, the state of torch) does not reach the other.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Type

from porting.support.interleaved import take_turns

from .choices import BenchSettings
from .processes import Child, ChildError, child_environment
from .report import Memory, StartUp
from .turns import Turn
from .workloads import Source

__all__ = ["SideProcess", "measure_memory", "measure_start_up", "run_job", "start_up_environment"]

_JOB_SECONDS = 600.0


class SideProcess:
    """The process of `side`, which makes the workload of `source`; it ends with the context.

    >>> source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {}})
    >>> with SideProcess("eager", source, BenchSettings()) as side:
    ...     len(side.take_turn(2).call_seconds)
    2
    """

    def __init__(self, side: str, source: Source, settings: BenchSettings) -> None:
        """Start it; it gets ready on its own."""
        self.side = side
        self.child = Child("turns", _task(side, source, settings), is_asked=True)
        self._is_ready = False

    def wait_until_ready(self) -> None:
        """Wait until the side is made and warmed up; raises ChildError where that fails."""
        if not self._is_ready:
            self._answer()
            self._is_ready = True

    def take_turn(self, num_calls: int) -> Turn:
        """Call the side so often; raises ChildError when the process ends instead."""
        self.wait_until_ready()
        self.child.ask(str(num_calls))
        answer = json.loads(self._answer())
        return Turn(tuple(answer["call_seconds"]), answer["cpu_seconds"])

    def _answer(self) -> str:
        try:
            return self.child.answer()
        except ChildError as failure:
            raise ChildError(f"{self.side}: {failure}") from None

    def __enter__(self) -> SideProcess:
        """Return this."""
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """End the process: it has nothing to finish."""
        self.child.__exit__(kind, error, trace)


def measure_memory(source: Source, settings: BenchSettings) -> Memory:
    """Measure the peak memory of each side, in one process after the other."""
    try:
        peaks = {side: run_job("memory", side, source, settings) for side in ("eager", "ported")}
    except ChildError as failure:
        return Memory(reason=str(failure))
    return Memory(
        eager_bytes=peaks["eager"]["peak_bytes"],
        ported_bytes=peaks["ported"]["peak_bytes"],
        ported_process_bytes=peaks["ported"]["process_peak_bytes"],
    )


def measure_start_up(source: Source, settings: BenchSettings) -> StartUp:
    """Time fresh processes of both sides in turns, to the end of the first step.

    The first one of each side is not counted: it writes bytecode and reads files that the others find. Cold starts,
    which find no executable, follow it.
    """
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as name:
        folder = Path(name)
        environment = start_up_environment(folder)

        def start(side: str, from_source: Source = source) -> Dict[str, Any]:
            return run_job("start-up", side, from_source, settings, environment=environment)

        try:
            sides = {"eager": lambda: start("eager"), "ported": lambda: start("ported")}
            take_turns(sides, rounds=1)
            cold = [start("ported", source.with_cache(str(folder / str(run)))) for run in range(settings.cold_starts)]
            runs = take_turns(sides, rounds=settings.start_up_runs)
        except ChildError as failure:
            return StartUp(reason=str(failure))
    eager, ported = runs["eager"], runs["ported"]
    return StartUp(
        eager_cpu_seconds=_median(eager, "cpu_seconds"),
        ported_cpu_seconds=_median(ported, "cpu_seconds"),
        cold_cpu_seconds=_median(cold, "cpu_seconds"),
        eager_wall_seconds=_median(eager, "wall_seconds"),
        ported_wall_seconds=_median(ported, "wall_seconds"),
        cold_wall_seconds=_median(cold, "wall_seconds"),
        eager_first_step_cpu_seconds=_median(eager, "first_step_cpu_seconds"),
        ported_first_step_cpu_seconds=_median(ported, "first_step_cpu_seconds"),
        cold_first_step_cpu_seconds=_median(cold, "first_step_cpu_seconds"),
        torch_cpu_seconds=_median(ported, "torch_cpu_seconds"),
        import_cpu_seconds=_median(ported, "import_cpu_seconds"),
        loads_compiler=any(run["loads_compiler"] for run in ported),
        num_runs=settings.start_up_runs,
    )


def _median(runs: List[Dict[str, Any]], figure: str) -> Optional[float]:
    return statistics.median(run[figure] for run in runs) if runs else None


def start_up_environment(folder: Path) -> Dict[str, str]:
    """Return an environment in which bytecode is kept, as of installed packages, whatever this process was told."""
    environment = child_environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PORTING_ENGINE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    return environment


def run_job(
    job: str,
    side: str,
    source: Source,
    settings: BenchSettings,
    *,
    environment: Optional[Mapping[str, str]] = None,
) -> Dict[str, Any]:
    """Run a job of `porting.bench.child` and return its result; raises ChildError with the reason if there is none."""
    with Child(job, _task(side, source, settings), environment=environment) as child:
        if not child.wait(_JOB_SECONDS):
            raise ChildError(f"the {side} process ran longer than {_JOB_SECONDS:.0f} s")
        status, reason, result = child.outcome()
        if status != "done":
            raise ChildError(f"{side}: {reason}")
        measured: Dict[str, Any] = result
        return measured


def _task(side: str, source: Source, settings: BenchSettings) -> Dict[str, Any]:
    return {"side": side, "source": source.to_dict(), "settings": settings.to_dict()}
