"""Programs in processes that have loaded torch and nothing else: forked from one that waits, which saves seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Dict, Optional, Sequence, Type


@dataclass(frozen=True)
class Ended:
    """How a program ended: its exit status, and what it wrote to stdout and stderr together."""

    status: int
    output: str


class FreshProcesses:
    """A process that forks one for each program; a context manager."""

    def __enter__(self) -> FreshProcesses:
        command = [sys.executable, "-m", "tests.hardware.fresh_process"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(
        self,
        _kind: Optional[Type[BaseException]],
        _error: Optional[BaseException],
        _traceback: Optional[TracebackType],
    ) -> None:
        self._process.communicate()

    def run(
        self, program: str, *, folder: Optional[object] = None, variables: Optional[Dict[str, str]] = None
    ) -> Ended:
        """Run a program's text in `folder`, with environment variables on top of those of the tests."""
        order = {"program": program, "folder": str(folder or os.getcwd()), "variables": variables or {}}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))

    def command(self, arguments: Sequence[str], *, folder: Optional[object] = None) -> Ended:
        """Run the command `porting`."""
        program = f"import sys, runpy; sys.argv = {['porting', *map(str, arguments)]!r}\n"
        return self.run(program + "runpy.run_module('porting', run_name='__main__', alter_sys=True)", folder=folder)


def _serve() -> None:
    import torch  # noqa: F401 - what all programs have loaded already

    for line in sys.stdin:
        print(json.dumps(_run_forked(json.loads(line))), flush=True)  # noqa: T201 - the answer


def _run_forked(order: Dict[str, Any]) -> Dict[str, Any]:
    with tempfile.TemporaryFile() as told:
        child = os.fork()
        if child == 0:
            os._exit(_run(order, told.fileno()))
        _child, code = os.waitpid(child, 0)
        told.seek(0)
        status = os.WEXITSTATUS(code) if os.WIFEXITED(code) else -os.WTERMSIG(code)
        return {"status": status, "output": told.read().decode(errors="replace")}


def _run(order: Dict[str, Any], output: int) -> int:
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.chdir(order["folder"])
    os.environ.update(order["variables"])
    sys.path.insert(0, "")
    status = 0
    try:
        exec(compile(order["program"], "<program>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


if __name__ == "__main__":
    _serve()
