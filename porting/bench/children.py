"""Figures that need processes of their own: peak memory, and what it costs to get to the first trained step."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping

from .processes import child_environment, describe_exit
from .report import Memory, StartUp
from .settings import BenchSettings
from .workloads import Source

__all__ = ["job_command", "measure_memory", "measure_start_up", "run_job"]

_JOB_SECONDS = 600.0


class _JobError(Exception):
    """A job that gave no result; the text says why."""


def measure_memory(source: Source, settings: BenchSettings) -> Memory:
    """Measure the peak memory of each side, in one process after the other."""
    try:
        peaks = {side: run_job("memory", side, source, settings)["peak_bytes"] for side in ("eager", "ported")}
    except _JobError as failure:
        return Memory(reason=str(failure))
    return Memory(eager_bytes=peaks["eager"], ported_bytes=peaks["ported"])


def measure_start_up(source: Source, settings: BenchSettings) -> StartUp:
    """Time fresh processes of both sides in turns, to the end of the first trained step.

    The first one of each side is not counted: it may have to read files that the others find in memory.
    """
    runs: Dict[str, List[Mapping[str, Any]]] = {"eager": [], "ported": []}
    try:
        for _run in range(settings.start_up_runs + 1):
            for side, of_side in runs.items():
                of_side.append(run_job("start-up", side, source, settings))
    except _JobError as failure:
        return StartUp(reason=str(failure))

    def median(side: str, figure: str) -> float:
        return statistics.median(run[figure] for run in runs[side][1:])

    return StartUp(
        eager_cpu_seconds=median("eager", "cpu_seconds"),
        ported_cpu_seconds=median("ported", "cpu_seconds"),
        eager_wall_seconds=median("eager", "wall_seconds"),
        ported_wall_seconds=median("ported", "wall_seconds"),
        num_runs=settings.start_up_runs,
    )


def run_job(job: str, side: str, source: Source, settings: BenchSettings) -> Dict[str, Any]:
    """Run `porting.bench.child` once and return its result; raise with the reason if there is none."""
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as folder:
        command = job_command(Path(folder), job, side, source, settings)
        result = Path(command[-1])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=_JOB_SECONDS, env=child_environment()
            )
        except subprocess.TimeoutExpired:
            raise _JobError(f"the {side} process ran longer than {_JOB_SECONDS:.0f} s") from None
        if done.returncode or not result.exists():
            raise _JobError(f"the {side} process ended with {describe_exit(done.returncode, done.stderr)}")
        measured: Dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return measured


def job_command(folder: Path, job: str, side: str, source: Source, settings: BenchSettings) -> List[str]:
    """Write a task for `porting.bench.child` into `folder`; return its command, which ends in the result's path."""
    task = folder / "task.json"
    content: Dict[str, Any] = {"job": job, "side": side, "started": time.time()}
    content.update(source=source.to_dict(), settings=settings.to_dict())
    task.write_text(json.dumps(content), encoding="utf-8")
    return [sys.executable, "-m", "porting.bench.child", str(task), str(folder / "result.json")]
