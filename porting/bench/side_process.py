"""A side that takes its turns in a process of its own, as a program that does nothing else would run.

What one side asks of the process (threads, the C library's memory, the state of torch) does not reach the other.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Optional, Type

from .children import job_command
from .processes import child_environment, describe_exit
from .settings import BenchSettings
from .turns import Turn
from .workloads import Source

__all__ = ["SideProcess", "SideProcessError"]


class SideProcessError(RuntimeError):
    """The process of a side ended; the text says how."""


class SideProcess:
    """The process of `side`, which makes the workload of `source`; it ends with the context.

    >>> source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {}})
    >>> with SideProcess("eager", source, BenchSettings()) as side:
    ...     len(side.take_turn(2).call_seconds)
    2
    """

    def __init__(self, side: str, source: Source, settings: BenchSettings) -> None:
        """Start it; it gets ready on its own."""
        self._side = side
        self._folder = tempfile.TemporaryDirectory(prefix="porting-bench-")
        folder = Path(self._folder.name)
        self._errors: IO[Any] = open(folder / "errors", "w+b")  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            job_command(folder, "turns", side, source, settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=child_environment(),
        )
        self._is_ready = False

    def wait_until_ready(self) -> None:
        """Wait until the side is made and warmed up; raises SideProcessError where that fails."""
        if not self._is_ready:
            self._answer()
            self._is_ready = True

    def take_turn(self, num_calls: int) -> Turn:
        """Call the side so often; raises SideProcessError when the process ends instead."""
        self.wait_until_ready()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the answer says more
            self._process.stdin.write(f"{num_calls}\n")
            self._process.stdin.flush()
        answer = json.loads(self._answer())
        return Turn(tuple(answer["call_seconds"]), answer["cpu_seconds"])

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return line
        status = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace")
        raise SideProcessError(f"the {self._side} process ended with {describe_exit(status, said)}")

    def __enter__(self) -> SideProcess:
        """Return this."""
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """End the process: it has nothing to finish."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._folder.cleanup()
