"""Run one job in a process that may hang, crash, or take all memory without harm to this one: `BoundProcess`.

Compilers, benchmarks, proofs and probes run in one. It works in a folder of its own, temporary files included, so that
it shares nothing with other processes and leaves nothing. It leads a process group, which is killed as a whole; it
watches a pipe, and if this process dies, in whatever way, it removes its folder and kills the group.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

from .process import signal_descendants

__all__ = [
    "JOB",
    "LOG",
    "READY",
    "RESULT",
    "BoundProcess",
    "describe_exit",
    "find_free_memory",
    "make_environment",
    "measure_group_memory",
]

JOB = "job.json"
"""What the process is to do, in its folder."""

READY = "ready"
"""It is there when the process would end with its parent, also one that is paused."""

RESULT = "result.json"
"""What it says of its outcome."""

LOG = "log.txt"
"""Everything that it and what it starts write."""

_POLL_SECONDS = 0.05
_SHOWN_LINES = 3
# A process in an uninterruptible wait of the kernel does not die at once, even by SIGKILL.
_KILL_SECONDS = 10.0

# A string instead of `-m`: what the parent has added to its `sys.path` does not travel. The paths go to the end, so
# that they hide nothing that the child finds by itself. Python's own exit, which takes a second where a compiler was
# loaded, is not needed.
# With a `__file__` it is no program that a user has typed in, where findings would have their places.
_START = (
    f"__file__ = {__file__!r}; "
    "import os, sys; sys.path.extend({paths!r}); from porting.support.bound_worker import main; "
    "status = main({folder!r}); sys.stdout.flush(); sys.stderr.flush(); os._exit(status)"
)


class BoundProcess:
    """Runs `function`, named "module:function", on `arguments` (plain values) and the folder of the process.

    The folder is made in `parent`, or among the temporary files, and goes with `end`. The process works in
    `working_folder`, or in its own; `environment` replaces this process's, and `passed` are descriptors that it keeps
    open. With `is_idle` it uses only idle processor time. It ends with the job, without Python's own exit, which would
    call the functions registered with `atexit`.
    """

    def __init__(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        parent: Optional[str] = None,
        working_folder: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        passed: Sequence[int] = (),
        is_idle: bool = False,
    ) -> None:
        """Make the folder; raises OSError if that fails. Nothing runs before `start`."""
        if not sys.executable:
            raise OSError("this program does not know which Python runs it")
        self.folder = Path(tempfile.mkdtemp(prefix=".porting-", dir=parent))
        self._job = {"function": function, "arguments": dict(arguments), "is_idle": is_idle}
        self._working_folder = working_folder or str(self.folder)
        self._environment = dict(os.environ if environment is None else environment)
        self._passed = tuple(passed)
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._owner = os.getpid()
        self._is_paused = self._is_gone = False

    def start(self) -> None:
        """Start the process; OSError where there is no room for its files or no further process."""
        (self.folder / "tmp").mkdir()
        (self.folder / JOB).write_text(json.dumps(self._job), encoding="utf-8")
        torch = importlib.util.find_spec("torch")
        paths = [str(Path(__file__).resolve().parents[2])]
        if torch is not None and torch.origin:
            paths.append(str(Path(torch.origin).parents[1]))
        # what would fill the log must not come from outside
        left_out = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "PYTHONSTARTUP")
        kept = {name: value for name, value in self._environment.items() if name not in left_out}
        # with its temporary files in its folder even a killed compiler leaves none
        own = {"TMPDIR": str(self.folder / "tmp"), "PYTHONWARNINGS": "ignore"}
        with open(self.folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START.format(paths=paths, folder=str(self.folder))],
                # nothing is written to this pipe: its end tells the child that this process has ended
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._working_folder,
                env={**kept, **own},
                pass_fds=self._passed,
                # the leader of a group of its own, so that one signal reaches what it starts as well
                start_new_session=True,
            )

    def wait(self, seconds: float) -> bool:
        """Wait for at most these seconds, and tell whether it has ended."""
        assert self._process is not None
        try:
            self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def has_ended(self) -> bool:
        """Tell whether it has ended, without waiting."""
        return self._process is not None and self._process.poll() is not None

    def pause(self) -> None:
        """Stop it and its children until `resume` or its end; only Linux supports that."""
        if self._process is not None and (self.folder / READY).exists():
            self._is_paused = True
            self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after a `pause`; no effect without one."""
        if self._is_paused:
            self._signal_all(signal.SIGCONT)
            self._is_paused = False

    def _signal_all(self, number: int) -> None:
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, number)
        signal_descendants(self._process.pid, number)

    def measure_memory(self) -> int:
        """Return the bytes that it and its children have in memory; 0 where the system does not report it."""
        return 0 if self._process is None else measure_group_memory(self._process.pid)

    def kill(self) -> Optional[int]:
        """Kill the process and its children, wait for the end, and return the exit status; the folder stays."""
        process = self._process
        # a fork of this process, such as a worker of a loader, has inherited the object and not the process
        if process is None or self._owner != os.getpid():
            return None
        # by now its number may be another's
        if self._is_gone:
            return process.returncode
        # what leads a group of its own has to see the end of this one
        self.resume()
        try:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        except (ProcessLookupError, PermissionError):
            pass  # all of them have ended
        # Closed only now: an earlier end of the pipe would make the child clear its folder away.
        if process.stdin is not None:
            process.stdin.close()
        status = process.wait(timeout=_KILL_SECONDS)
        self._is_gone = True
        return status

    def end(self) -> None:
        """Kill the process and its children and remove the folder."""
        if self._owner != os.getpid():
            return
        self.kill()
        for _attempt in range(20):
            shutil.rmtree(self.folder, ignore_errors=True)
            if not self.folder.exists():
                break
            time.sleep(_POLL_SECONDS)  # a process that is dying may still have made a file

    def read_error(self) -> Optional[str]:
        """Return the error's text, empty if there was none; None if the process ended without a result."""
        result = self._read_result()
        return None if result is None else str(result.get("error", ""))

    def read_returned(self) -> Any:
        """Return the function's result, which is plain values; None if it has failed."""
        return (self._read_result() or {}).get("returned")

    def _read_result(self) -> Optional[Dict[str, Any]]:
        try:
            result: Dict[str, Any] = json.loads((self.folder / RESULT).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return result

    def read_end_of_log(self) -> str:
        """Return the last 20,000 bytes of its output."""
        try:
            text = (self.folder / LOG).read_bytes()[-20000:].decode(errors="replace")
        except OSError:
            return ""
        return text.replace(f"{self.folder}/", "")


# -- memory ------------------------------------------------------------------------------------------------------------


def measure_group_memory(group: int) -> int:
    """Return the bytes that the processes of a group have in memory; 0 where the system does not report it.

    >>> measure_group_memory(-1)
    0
    """
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # the name of a program, in brackets, may contain anything
            # The fields are those of proc(5), counted after the name: 2 is the group, 21 the pages in memory.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[2]) == group:
                total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError, ValueError):
            continue  # it has ended meanwhile
    return total


def find_free_memory() -> float:
    """Return the bytes that are free for new programs; infinity where the system does not report it."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        text = ""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else float("inf")


def make_environment() -> Dict[str, str]:
    """Return this process's environment, with its import path for the processes that are started with it."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def describe_exit(status: int, output: str) -> str:
    """Describe how a process ended, with the last lines that it printed.

    >>> describe_exit(-9, "")
    'signal 9: killed, as the system does when memory runs out'
    """
    if status == -9:
        return "signal 9: killed, as the system does when memory runs out"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = "; ".join(lines[-_SHOWN_LINES:])
    ended = f"signal {-status}" if status < 0 else f"exit status {status}"
    return f"{ended}: {said}" if said else ended
