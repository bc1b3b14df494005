"""Run programs that are observed, each in a process and a folder of its own, until they have made some steps."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Callable, List, Mapping, NoReturn, Optional, Sequence, Tuple

from porting.diagnostics import ExecutableError, PortingError, say_number
from porting.run import is_simulated, simulated_environment, vendor_environment
from porting.support.bound_process import describe_exit, make_environment
from porting.verify.observation import OUT_OF_TIME, Observation, ProjectRun, Task
from porting.verify.plain_runs import Perturbation
from porting.verify.working_folder import link_folder

__all__ = ["ProgramPair", "ProgramRuns", "observe_tasks", "start_process"]

_SHOWN_LINES, _SHOWN_BYTES = 5, 1 << 16
_START = "from porting.verify.observed_process import main; main()"
# a program that writes more loses what it has written
_MOST_LOGGED, _LOOK_SECONDS = 64 << 20, 0.5
# an observed process ends itself before
_GRACE_SECONDS = 60
# what would open windows or connections
_QUIET = {"MPLBACKEND": "Agg", "WANDB_MODE": "offline"}


@dataclass(frozen=True)
class ProgramPair:
    """The scripts of a ported and of a plain program, and the arguments of each."""

    ported: str
    plain: str
    arguments: Tuple[str, ...] = ()
    plain_arguments: Tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramRuns:
    """How two programs are run: until they have made some optimizer steps, from one seed.

    With a project each runs in a copy of it; the port's gradients are kept then where a simulated device has them.
    """

    pair: ProgramPair
    seed: int
    device: str
    tell: Callable[[str], None]
    ported_project: Optional[ProjectRun] = None
    plain_project: Optional[ProjectRun] = None

    def run_port(self, num_steps: int, *, is_exact: bool = False) -> Observation:
        """Run the ported program, with digests of all bits where it is exact; raises as `run_plain` does."""
        self.tell(f"the port: {self.pair.ported}")
        is_sim = is_simulated(self.device)
        task = Task(
            os.path.abspath(self.pair.ported),
            self.pair.arguments,
            num_steps,
            self.seed,
            is_port=True,
            project=self.ported_project,
            is_exact=is_exact,
            anchors_gradients=is_sim and self.ported_project is not None,
        )
        environment = make_environment()
        return _run_tasks([task], (simulated_environment if is_sim else vendor_environment)(environment))[0]

    def run_plain(self, num_steps: int, *perturbations: Perturbation) -> List[Observation]:
        """Run the plain program once for each perturbation.

        Raises ExecutableError E021 where it fails before its first step, PortingError V002 where it makes none.
        """
        self.tell(f"plain PyTorch, {say_number(len(perturbations), 'time')}: {self.pair.plain}")
        task = self.make_plain_task(num_steps)
        return _run_tasks(
            [replace(task, perturbation=perturbation) for perturbation in perturbations],
            vendor_environment(make_environment()),
        )

    def make_plain_task(self, num_steps: int) -> Task:
        """Say how the plain program is run."""
        project, script = self.plain_project, os.path.abspath(self.pair.plain)
        arguments = self.pair.plain_arguments
        return Task(script, arguments, num_steps, self.seed, project=project, is_exact=project is not None)


# -- runs --------------------------------------------------------------------------------------------------------------


def _run_tasks(tasks: Sequence[Task], environment: Mapping[str, str]) -> List[Observation]:
    """Run one script as `observe_tasks` does, which has to train."""
    found = observe_tasks(tasks, environment)
    for observed in found:
        # an error in the first step leaves a training without any
        if not observed.num_steps:
            _refuse_run(tasks[0].script, observed)
    return found


def observe_tasks(tasks: Sequence[Task], environment: Mapping[str, str]) -> List[Observation]:
    """Run tasks in one process, or in as many forks of it as there are tasks, and return what was seen of each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, task in enumerate(tasks):
            if task.project is None:
                link_folder(Path.cwd(), folder / str(number))
        (folder / "tasks").write_bytes(pickle.dumps(tasks))
        with (folder / "all.log").open("ab") as log:
            command = [sys.executable, "-c", _START, str(folder)]
            status = _start_limited(command, {**environment, "PYTHONHASHSEED": "0"}, log, tasks)
        return [_read_found(folder, number, status) for number, _task in enumerate(tasks)]


def _start_limited(command: Sequence[str], environment: Mapping[str, str], log: BinaryIO, tasks: Sequence[Task]) -> int:
    limits = [task.project.limit_seconds + _GRACE_SECONDS for task in tasks if task.project is not None]
    if not limits:
        return start_process(command, environment, log)
    return start_process(command, {**environment, **_QUIET}, log, limit_seconds=sum(limits))


def _read_found(folder: Path, number: int, status: int) -> Observation:
    """Read what was observed, with the last that was written; a process that has left nothing ended otherwise."""
    said = "\n".join(_read_end(folder / f"{name}.log") for name in ("all", number))
    file = folder / f"{number}.found"
    found = pickle.loads(file.read_bytes()) if file.exists() else Observation()
    if not file.exists():
        is_late = status == -signal.SIGALRM
        found.error = f"{OUT_OF_TIME} its time, and did not listen" if is_late else describe_exit(status, said)
    found.said = said
    return found


def _read_end(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(-min(_SHOWN_BYTES, path.stat().st_size), os.SEEK_END)
        return file.read().decode("utf-8", "replace")


def start_process(
    command: Sequence[str], environment: Mapping[str, str], log: BinaryIO, *, limit_seconds: Optional[float] = None
) -> int:
    """Run a command to its end with all that it says in `log`, and return its status; interrupted, it ends at once.

    After `limit_seconds` it is killed, and the status is that of an alarm. Of a flood of words the first are dropped.
    """
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    deadline = time.monotonic() + (limit_seconds or float("inf"))
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_SECONDS)
            for path in Path(log.name).parent.glob("*.log"):
                if path.stat().st_size > _MOST_LOGGED:
                    os.truncate(path, 0)
            if time.monotonic() > deadline:
                return -signal.SIGALRM
    finally:
        # with its forks, which nobody waits for any more
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _refuse_run(script: str, observed: Observation) -> NoReturn:
    if not observed.error:
        raise PortingError.of(
            "V002",
            message=f"`{os.path.relpath(script)}` makes no step of an optimizer",
            help="name a program that trains when it is run, and give it its arguments: `--args=...`",
        )
    script = os.path.relpath(script)
    lines = [line for line in observed.said.splitlines() if line.strip()][-_SHOWN_LINES:]
    raise ExecutableError.of(
        "E021",
        message=f"running `{script}` failed: {observed.error}",
        place=observed.place,
        notes=("the last that it wrote:", *lines) if lines else (),
        help="run it alone first, from this folder and with the same arguments",
    )
