"""Figures that need processes of their own: turns of the eager side, peak memory, and the way to the first step.

What one side asks of its process (threads, the C library's memory, the state of torch) does not reach the other.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from porting.support.interleaved import take_turns
from porting.support.plain_data import read_plain

from .choices import BenchSettings
from .layout_copies import LayoutCopies, SideCopies
from .processes import Child, ChildError, make_environment
from .report import Memory, StartUp
from .workloads import Source

__all__ = [
    "make_plain_environment",
    "measure_layout_copies",
    "measure_memory",
    "measure_start_up",
    "run_job",
    "start_side",
]

_JOB_SECONDS = 600.0
_NUM_MEMORY_CALLS = 6


def start_side(side: str, source: Source, settings: BenchSettings) -> Child:
    """Start the process of `side`, which makes the workload of `source`; `ask()` waits until it is made and warm.

    Asked a number, `ask(number)` returns the `Turn` of so many calls.

    >>> source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {}})
    >>> with start_side("eager", source, BenchSettings()) as child:
    ...     child.ask(), len(child.ask(2).call_seconds)
    ('ready', 2)
    """
    return Child("turns", _make_task(side, source, settings), is_asked=True)


def measure_memory(source: Source, settings: BenchSettings) -> Memory:
    """Measure the peak memory of each side, in one process after the other.

    Two of each: the profiler that tells what tensors take would be counted among what the process takes.
    """

    def find_peaks(side: str) -> Dict[str, Optional[int]]:
        tasks = ({"tensors": tensors, "num_calls": _NUM_MEMORY_CALLS} for tensors in (False, True))
        jobs = (run_job("memory", side, source, settings, more=task) for task in tasks)
        return {name: figure for job in jobs for name, figure in job.items()}

    try:
        eager, ported = find_peaks("eager"), find_peaks("ported")
    except ChildError as failure:
        return Memory(reason=str(failure))
    return Memory(
        eager_bytes=eager["peak_bytes"],
        ported_bytes=ported["peak_bytes"],
        eager_tensor_bytes=eager["tensor_bytes"],
        ported_tensor_bytes=ported["tensor_bytes"],
        eager_process_bytes=eager["process_peak_bytes"],
        ported_process_bytes=ported["process_peak_bytes"],
    )


def measure_layout_copies(source: Source, settings: BenchSettings) -> LayoutCopies:
    """Count what a step copies into another layout, in a process of each side."""
    try:
        eager, ported = (
            read_plain(SideCopies, run_job("layouts", side, source, settings)) for side in ("eager", "ported")
        )
    except ChildError as failure:
        return LayoutCopies(reason=str(failure))
    return LayoutCopies(eager, ported)


def measure_start_up(source: Source, settings: BenchSettings) -> StartUp:
    """Time fresh processes of both sides in turns, to the end of the first step.

    The first one of each side is not counted: it writes bytecode and reads files that the others find. Cold starts,
    which find no executable, follow it.
    """
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as folder:
        environment = make_plain_environment(Path(folder))

        def start(side: str, from_source: Source = source) -> Dict[str, Any]:
            return run_job("start-up", side, from_source, settings, environment=environment)

        sides = {"eager": lambda: start("eager"), "ported": lambda: start("ported")}
        try:
            take_turns(sides, rounds=1)
            caches = [str(Path(folder) / str(run)) for run in range(settings.cold_starts)]
            cold = [start("ported", source.with_cache(cache)) for cache in caches]
            runs = {**take_turns(sides, rounds=settings.start_up_runs), "cold": cold}
        except ChildError as failure:
            return StartUp(reason=str(failure))
    figures: Dict[str, Any] = {
        f"{side}_{figure}": _find_median(of_side, figure)
        for side, of_side in runs.items()
        for figure in ("cpu_seconds", "wall_seconds", "first_step_cpu_seconds")
    }
    return StartUp(
        **figures,
        torch_cpu_seconds=_find_median(runs["ported"], "torch_cpu_seconds"),
        import_cpu_seconds=_find_median(runs["ported"], "import_cpu_seconds"),
        loads_compiler=any(run["loads_compiler"] for run in runs["ported"]),
        num_runs=settings.start_up_runs,
    )


def make_plain_environment(folder: Path) -> Dict[str, str]:
    """Return an environment for processes whose start counts: bytecode is kept, as that of installed packages is.

    It lies in the folder unless the user has said where.
    """
    environment = {"PYTHONPYCACHEPREFIX": str(folder / "bytecode"), **make_environment()}
    for name in ("PYTHONDONTWRITEBYTECODE", "PORTING_ENGINE"):
        environment.pop(name, None)
    return environment


def _find_median(runs: List[Dict[str, Any]], figure: str) -> Optional[float]:
    return statistics.median(run[figure] for run in runs) if runs else None


def run_job(
    job: str,
    side: str,
    source: Source,
    settings: BenchSettings,
    *,
    environment: Optional[Mapping[str, str]] = None,
    more: Optional[Mapping[str, Any]] = None,
    more_seconds: float = 0.0,
) -> Dict[str, Any]:
    """Run a job of `porting.bench.child` and return its result; raises ChildError with the reason if there is none.

    `more` is what only this job is told. It has ten minutes and `more_seconds`.
    """
    task = {**_make_task(side, source, settings), **(more or {})}
    with Child(job, task, environment=environment) as child:
        outcome = child.wait(_JOB_SECONDS + more_seconds)
    if outcome.status != "done":
        raise ChildError(f"{side}: {outcome.reason}")
    return outcome.result


def _make_task(side: str, source: Source, settings: BenchSettings) -> Dict[str, Any]:
    return {"side": side, "source": asdict(source), "settings": settings.to_dict()}
