"""This module measures what needs fresh processes: eager turns, peak memory, start-up, layout copies, and curves.

Processes keep the sides apart: threads, the C library's memory and torch's state of one do not affect the other.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from porting.bench.choices import BenchSettings
from porting.bench.curve import Curve, list_marks, sum_up_side
from porting.bench.layout_copies import LayoutCopies, SideCopies
from porting.bench.processes import Child, ChildError
from porting.bench.workloads import Source
from porting.support.bound_process import make_environment
from porting.support.interleaved import run_interleaved
from porting.support.plain_data import read_plain

__all__ = [
    "Memory",
    "StartUp",
    "make_plain_environment",
    "measure_curve",
    "measure_layout_copies",
    "measure_memory",
    "measure_start_up",
    "run_job",
    "start_side",
]

_JOB_SECONDS = 600.0
_NUM_MEMORY_CALLS = 6


@dataclass(frozen=True)
class Memory:
    """Peak memory of each side in a process of its own, beyond what the process had with all imports, model and data.

    None with a `reason` where it could not be measured. The ported side's process finds its executable on disk, where
    the engine keeps such. "tensor" figures are those of torch's allocator alone, "process" figures the peaks of whole
    processes.
    """

    eager_bytes: Optional[int] = None
    ported_bytes: Optional[int] = None
    eager_tensor_bytes: Optional[int] = None
    ported_tensor_bytes: Optional[int] = None
    eager_process_bytes: Optional[int] = None
    ported_process_bytes: Optional[int] = None
    reason: str = ""

    @property
    def ratio(self) -> Optional[float]:
        """The ported side's peak over the eager one's."""
        if not self.eager_bytes or self.ported_bytes is None:
            return None
        return self.ported_bytes / self.eager_bytes


@dataclass(frozen=True)
class StartUp:
    """Processor and clock seconds of fresh processes, from their start to the end of the first step.

    The medians of `num_runs` runs of each side in turns; the ported one finds its executable on disk, where the engine
    keeps such, and "cold" ones do not. A first step begins when model and batch are there. `torch_cpu_seconds` are
    those of `import torch`, `import_cpu_seconds` those of what a port imports beyond it. `loads_compiler` says whether
    a ported process loaded torch's compiler. None with a `reason` where they were not measured.
    """

    eager_cpu_seconds: Optional[float] = None
    ported_cpu_seconds: Optional[float] = None
    eager_wall_seconds: Optional[float] = None
    ported_wall_seconds: Optional[float] = None
    cold_cpu_seconds: Optional[float] = None
    cold_wall_seconds: Optional[float] = None
    eager_first_step_cpu_seconds: Optional[float] = None
    ported_first_step_cpu_seconds: Optional[float] = None
    cold_first_step_cpu_seconds: Optional[float] = None
    torch_cpu_seconds: Optional[float] = None
    import_cpu_seconds: Optional[float] = None
    loads_compiler: Optional[bool] = None
    num_runs: int = 0
    reason: str = ""


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

    def collect_peaks(side: str) -> Dict[str, Optional[int]]:
        tasks = ({"tensors": tensors, "num_calls": _NUM_MEMORY_CALLS} for tensors in (False, True))
        jobs = (run_job("memory", side, source, settings, more=task) for task in tasks)
        return {name: figure for job in jobs for name, figure in job.items()}

    try:
        eager, ported = collect_peaks("eager"), collect_peaks("ported")
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
            run_interleaved(sides, rounds=1)
            caches = [str(Path(folder) / str(run)) for run in range(settings.cold_starts)]
            cold = [start("ported", source.with_cache(cache)) for cache in caches]
            runs = {**run_interleaved(sides, rounds=settings.start_up_runs), "cold": cold}
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
    """Return an environment for processes whose start-up is timed: bytecode is cached, as for installed packages.

    The cache lies in `folder` unless the user has named another place.
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


# -- curves ------------------------------------------------------------------------------------------------------------

# a port that is slower than eager has this many times as long for the same steps
_PATIENCE = 3.0


def measure_curve(source: Source, settings: BenchSettings, *, engine: str, steps_per_call: int) -> Curve:
    """Time processes of eager, cold and warm sides in turns to as many steps as eager takes in the time for a curve.

    Processes that are not counted go first: they write the bytecode that the others find, show how many steps there is
    time for, and compile what a warm process finds in the cache of `source`. For an engine that only takes what is
    there, "ready", they leave in a cache of its own what `porting compile` does.
    """
    marks = list_marks(steps_per_call)
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as folder:
        environment = make_plain_environment(Path(folder))
        more_seconds = _PATIENCE * settings.curve_seconds

        def run(side: str, of_source: Source, *, num_calls: int, **changes: object) -> Dict[str, Any]:
            more = {"num_calls": num_calls, "seconds": None, "engine": None, "compiles": False, **changes}
            return run_job(
                "curve", side, of_source, settings, environment=environment, more=more, more_seconds=more_seconds
            )

        try:
            fitting = run("eager", source, num_calls=marks[-1] // steps_per_call, seconds=settings.curve_seconds)
            if engine == "ready":
                # with executables in it, the user's own would be another one
                source = source.with_cache(str(Path(folder) / "warm"))
            run("ported", source, num_calls=1, engine="auto" if engine == "ready" else None, compiles=True)
            num_calls = len(fitting["call_seconds"])
            steps = [mark for mark in marks if mark <= num_calls * steps_per_call] or marks[:1]
            count = functools.partial(run, num_calls=steps[-1] // steps_per_call, seconds=more_seconds)
            caches = (source.with_cache(str(Path(folder) / f"cold-{number}")) for number in range(settings.curve_runs))
            runs = run_interleaved(
                {
                    "eager": lambda: count("eager", source),
                    "cold": lambda: count("ported", next(caches)),
                    "warm": lambda: count("ported", source),
                },
                rounds=settings.curve_runs,
            )
        except ChildError as failure:
            return Curve(reason=str(failure))
    eager, cold, warm = (
        sum_up_side(runs[name], runs["eager"], steps, steps_per_call=steps_per_call)
        for name in ("eager", "cold", "warm")
    )
    return Curve(tuple(steps), settings.curve_runs, eager, cold, warm)
