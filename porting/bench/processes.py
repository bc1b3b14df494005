"""Processes of one job each: starting `porting.bench.child`, waiting for its result, and saying how it ended.

Each cell is measured in one, so that a cell that fails, hangs or dies stops no other.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from .choices import BenchSettings, Choices

__all__ = ["Cell", "Child", "ChildError", "describe_exit", "make_environment", "run_cell"]

_SHOWN_LINES = 3
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
            "choices": asdict(self.choices),
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
    task = {
        "source": {"loader": cell.loader, "arguments": {**cell.arguments, "cache_dir": cache_dir}},
        "dataset": [cell.dataset_loader, dict(cell.dataset_arguments)] if cell.dataset_loader else None,
        "settings": cell.settings.to_dict(),
    }
    start = time.perf_counter()
    with Child("cell", task, leads_group=True) as child:
        in_time = child.wait(timeout, progress)
        child.end()
        seconds = time.perf_counter() - start
        if not in_time:
            return cell.record("timeout", reason=f"it ran longer than {timeout:.0f} s", seconds=seconds)
        status, reason, result = child.outcome()
        return cell.record(status, result=result, reason=reason, seconds=seconds)


class ChildError(RuntimeError):
    """A process ended without a result; the text says how."""


class Child:
    """A process that does one job of `porting.bench.child`; it ends with the context.

    Both share a folder: the task, what the process prints and how far it has come, and its result. With `is_asked` it
    answers questions on its standard output. With `leads_group` it has a group of its own, and all that it starts ends
    with it; others belong to the group of this process, and end with that.
    """

    def __init__(
        self,
        job: str,
        task: Mapping[str, Any],
        *,
        environment: Optional[Mapping[str, str]] = None,
        is_asked: bool = False,
        leads_group: bool = False,
    ) -> None:
        """Write the task and start the process."""
        self._subject = f"{task['side']}: the process" if "side" in task else "the process"
        self._leads_group = leads_group and os.name == "posix"
        self._temporary = tempfile.TemporaryDirectory(prefix="porting-bench-")
        self.folder = Path(self._temporary.name)
        content = {"job": job, "started": time.time(), **task}
        (self.folder / "task.json").write_text(json.dumps(content), encoding="utf-8")
        with open(self.folder / "output", "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "porting.bench.child", str(self.folder)],
                stdin=subprocess.PIPE if is_asked else subprocess.DEVNULL,
                stdout=subprocess.PIPE if is_asked else output,
                stderr=output,
                text=True,
                env=make_environment() if environment is None else dict(environment),
                start_new_session=self._leads_group,
            )

    def wait(
        self, timeout: Optional[float], progress: Callable[[str, float], None] = lambda _text, _share: None
    ) -> bool:
        """Wait for the end of the process and pass its progress on; False when its time is up."""
        deadline = None if timeout is None else time.monotonic() + timeout
        said = ""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_POLL_SECONDS)
                return True
            with contextlib.suppress(OSError, ValueError):
                line = (self.folder / "progress").read_text(encoding="utf-8")
                if line != said:
                    said = line
                    share, _, text = line.partition(" ")
                    progress(text, float(share))
            if deadline is not None and time.monotonic() > deadline:
                return False

    def outcome(self) -> Tuple[str, str, Any]:
        """Read what a process that has ended left: a status as cells have it, the reason if it failed, the result."""
        path = self.folder / "result.json"
        if path.exists():
            left = json.loads(path.read_text(encoding="utf-8"))
            return left["status"], left["reason"], left["result"]
        status = "out_of_memory" if self.process.wait() == -9 else "failed"
        return status, f"the process {self._describe_end()}", None

    def ask(self, question: str = "") -> str:
        """Write a line to the process, if any, and return the next one that it says.

        Raises ChildError when it ends instead.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(f"{question}\n" if question else "")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise ChildError(f"{self._subject} {self._describe_end()}")
        return line

    def end(self) -> None:
        """End the process if it still runs; a leader first as Ctrl-C would, and then whatever it has started."""
        if self.process.poll() is None and self._leads_group:
            self.process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_GRACE_SECONDS)
        if self._leads_group:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        elif self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def _describe_end(self) -> str:
        status = self.process.wait()
        output = (self.folder / "output").read_text(encoding="utf-8", errors="replace")
        return f"ended with {describe_exit(status, output)}"

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the process and remove its folder."""
        self.end()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._temporary.cleanup()


def make_environment() -> Dict[str, str]:
    """Return this process's environment, with its import path for those that are started with it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def describe_exit(status: int, output: str) -> str:
    """Say how a process ended, with the last lines that it printed.

    >>> describe_exit(-9, "")
    'signal 9: killed, as the system does when memory runs out'
    """
    if status == -9:
        return "signal 9: killed, as the system does when memory runs out"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = "; ".join(lines[-_SHOWN_LINES:])
    ended = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"{ended}: {said}" if said else ended
