"""Cells: each is measured in a process of its own, so that one that fails, hangs or dies stops no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from .choices import Choices
from .processes import child_environment, describe_exit
from .settings import BenchSettings

__all__ = ["STATUSES", "Cell", "run_cell"]

STATUSES = ("done", "failed", "out_of_memory", "timeout", "interrupted", "not_run")
"""What can become of a cell."""

_POLL_SECONDS = 0.1
_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Cell:
    """One measurement: a target with choices and settings.

    `loader` and `arguments` say how a process makes the workload (see `Source`), `dataset_loader` and its arguments
    how it gets the data, if not from the batch. `demanded` is the speed-up that is asked for.
    """

    name: str
    target: str
    loader: str
    arguments: Mapping[str, Any]
    choices: Choices = field(default_factory=Choices)
    settings: BenchSettings = field(default_factory=BenchSettings)
    repeat: int = 1
    demanded: Optional[float] = None
    dataset_loader: Optional[str] = None
    dataset_arguments: Mapping[str, Any] = field(default_factory=dict)

    def record(self, status: str, *, result: Any = None, reason: str = "", seconds: float = 0.0) -> Dict[str, Any]:
        """Return the cell as it stands in a result file."""
        return {
            "name": self.name,
            "target": self.target,
            "choices": self.choices.to_dict(),
            "repeat": self.repeat,
            "status": status,
            "reason": reason,
            "seconds": seconds,
            "demanded": self.demanded,
            "result": result,
        }


def run_cell(
    cell: Cell,
    *,
    cache_dir: Optional[str],
    timeout: Optional[float],
    progress: Callable[[str, float], None] = lambda _text, _share: None,
) -> Dict[str, Any]:
    """Measure a cell in a process and return its record; whatever becomes of the process, there is one.

    Without `cache_dir`, executables go to a folder that is deleted afterwards: compiling is measured cold. `timeout` is
    in seconds. An interrupt (Ctrl-C) ends the process and is passed on.
    """
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="porting-bench-") as name:
        folder = Path(name)
        task = _write_task(cell, folder, cache_dir or str(folder / "cache"))
        with open(folder / "output", "wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "porting.bench.cell_process", str(task), str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=child_environment(),
                # with a group of its own, so that all it starts can be ended with it
                start_new_session=os.name == "posix",
            )
            try:
                in_time = _wait(process, folder, timeout, progress)
            finally:
                _end(process)
        seconds = time.perf_counter() - start
        if not in_time:
            return cell.record("timeout", reason=f"it ran longer than {timeout:.0f} s", seconds=seconds)
        status, reason, result = _outcome(process.returncode, folder)
        return cell.record(status, result=result, reason=reason, seconds=seconds)


def _write_task(cell: Cell, folder: Path, cache_dir: str) -> Path:
    task = folder / "task.json"
    content = {
        "source": {"loader": cell.loader, "arguments": {**cell.arguments, "cache_dir": cache_dir}},
        "dataset": None if cell.dataset_loader is None else [cell.dataset_loader, dict(cell.dataset_arguments)],
        "settings": cell.settings.to_dict(),
    }
    task.write_text(json.dumps(content), encoding="utf-8")
    return task


def _wait(
    process: subprocess.Popen[bytes], folder: Path, timeout: Optional[float], progress: Callable[[str, float], None]
) -> bool:
    """Wait for the process and pass its progress on; False when its time is up."""
    deadline = None if timeout is None else time.monotonic() + timeout
    said = ""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            return True
        with contextlib.suppress(OSError, ValueError):
            line = (folder / "progress").read_text(encoding="utf-8")
            if line != said:
                said = line
                share, _, text = line.partition(" ")
                progress(text, float(share))
        if deadline is not None and time.monotonic() > deadline:
            return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process if it still runs, first as Ctrl-C would, and whatever it has started in any case."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
    if os.name == "posix":
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()
    process.wait()


def _outcome(status: int, folder: Path) -> Tuple[str, str, Any]:
    """Read what the process left: the cell's status, the reason if it failed, and the result."""
    path = folder / "result.json"
    if path.exists():
        left = json.loads(path.read_text(encoding="utf-8"))
        return left["status"], left["reason"], left["result"]
    output = (folder / "output").read_text(encoding="utf-8", errors="replace")
    kind = "out_of_memory" if status == -9 else "failed"
    return kind, f"the process ended with {describe_exit(status, output)}", None
