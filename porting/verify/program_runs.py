"""Runs of training programs in processes of their own, each in a folder of its own, and what was observed in them."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Callable, List, Mapping, NoReturn, Sequence, Tuple

from porting.bench.processes import describe_exit, make_environment
from porting.diagnostics import ExecutableError, PortingError, say_number
from porting.run import is_simulated, simulated_environment, vendor_environment
from porting.verify.observed_program import Observation, Task
from porting.verify.plain_runs import Variant

__all__ = ["ProgramPair", "ProgramRuns", "start_process"]

_SHOWN_LINES = 5
_START = "from porting.verify.observed_program import main; main()"


@dataclass(frozen=True)
class ProgramPair:
    """The scripts of a ported and of a plain program, and the arguments of each."""

    ported: str
    plain: str
    arguments: Tuple[str, ...] = ()
    plain_arguments: Tuple[str, ...] = ()


@dataclass(frozen=True)
class ProgramRuns:
    """How two programs are run: until they have made some optimizer steps, from one seed."""

    pair: ProgramPair
    seed: int
    device: str
    tell: Callable[[str], None]

    def run_port(self, num_steps: int) -> Observation:
        """Run the ported program; raises as `run_plain` does."""
        self.tell(f"the port: {self.pair.ported}")
        change = simulated_environment if is_simulated(self.device) else vendor_environment
        task = Task(os.path.abspath(self.pair.ported), self.pair.arguments, num_steps, self.seed, is_port=True)
        return _run_tasks([task], change(make_environment()))[0]

    def run_plain(self, num_steps: int, *variants: Variant) -> List[Observation]:
        """Run the plain program once for each variant.

        Raises ExecutableError E021 where it fails before its first step, PortingError V002 where it makes none.
        """
        self.tell(f"plain PyTorch, {say_number(len(variants), 'time')}: {self.pair.plain}")
        task = Task(os.path.abspath(self.pair.plain), self.pair.plain_arguments, num_steps, self.seed)
        return _run_tasks(
            [replace(task, variant=variant) for variant in variants], vendor_environment(make_environment())
        )


def _run_tasks(tasks: Sequence[Task], environment: Mapping[str, str]) -> List[Observation]:
    """Run one script in one process, or in as many forks of it as there are tasks."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, _task in enumerate(tasks):
            _link_folder(Path.cwd(), folder / str(number))
        (folder / "tasks").write_bytes(pickle.dumps(tasks))
        with (folder / "log").open("wb") as log:
            status = start_process(
                [sys.executable, "-c", _START, str(folder)], {**environment, "PYTHONHASHSEED": "0"}, log
            )
        said = (folder / "log").read_text("utf-8", "replace")
        files = [folder / f"{number}.found" for number, _task in enumerate(tasks)]
        found = [pickle.loads(file.read_bytes()) if file.exists() else Observation() for file in files]
    for observed in found:
        if not observed.trainings:
            _refuse_run(tasks[0].script, observed, describe_exit(status, said) if status else "", said)
    return found


def start_process(command: Sequence[str], environment: Mapping[str, str], log: BinaryIO) -> int:
    """Run a command to its end with all that it says in `log`, and return its status; interrupted, it ends at once."""
    streams: Any = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
    try:
        return process.wait()
    except BaseException:
        # with its forks, which nobody waits for any more
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def _link_folder(folder: Path, working: Path) -> None:
    """Make a working folder in which a program finds what lies in `folder`, and leaves what it makes."""
    working.mkdir()
    for entry in folder.iterdir():
        (working / entry.name).symlink_to(entry)


def _refuse_run(script: str, observed: Observation, ended: str, said: str) -> NoReturn:
    if not observed.error and not ended:
        raise PortingError.of(
            "V002",
            message=f"`{os.path.relpath(script)}` makes no step of an optimizer",
            help="name a program that trains when it is run, and give it its arguments: `--args=...`",
        )
    script = os.path.relpath(script)
    lines = [line for line in said.splitlines() if line.strip()][-_SHOWN_LINES:]
    raise ExecutableError.of(
        "E021",
        message=f"running `{script}` failed: {observed.error or ended}",
        place=observed.place,
        notes=("the last that it wrote:", *lines) if lines else (),
        help="run it alone first, from this folder and with the same arguments",
    )
