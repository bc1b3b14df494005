"""Run observed programs in this process, or in forks of it, each in a folder of its own, and leave what was observed.

`main` runs scripts in the place of Python. A script that runs on for too long is ended, and one of a project works in a
copy of it.
"""

from __future__ import annotations

import os
import pickle
import re
import runpy
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, List, Optional, Sequence, Tuple

import torch

from porting.diagnostics import Place, find_raising_frame, take_first_line
from porting.support.host_state import seed_streams, use_threads
from porting.support.process import signal_with_parent
from porting.support.project_copies import copy_project, is_within
from porting.support.write_guard import WriteGuard
from porting.torch_insides.exchanged import exchange
from porting.verify.observation import OUT_OF_TIME, Observation, ProjectRun, Task
from porting.verify.observed_program import EnoughStepsError, ProgramObserver
from porting.verify.working_folder import enter_folder

__all__ = ["add_last_words", "enter_copy", "main", "name_original", "run_script"]

# smaller files are copied: a program writes some of them
_MOST_BYTES = 1 << 20


class _OutOfTimeError(BaseException):
    """Ends a script whose time is over."""


def main() -> None:
    """Run the tasks of the folder that the command names, each in a fork where there are several."""
    folder = Path(sys.argv[1]).resolve()
    tasks = pickle.loads((folder / "tasks").read_bytes())
    signal_with_parent(signal.SIGKILL)
    compiler = getattr(torch, "compiler", None)
    if len(tasks) > 1 and compiler is not None:
        # loads what every optimizer loads, in seconds, before the forks
        compiler.disable(main)
    for number, task in enumerate(tasks):
        process_id = os.fork() if len(tasks) > 1 else 0
        if not process_id:
            signal_with_parent(signal.SIGKILL)
            _run_task(task, folder / str(number))
            return
        if os.waitpid(process_id, 0)[1]:
            sys.exit(1)


def _run_task(task: Task, folder: Path) -> None:
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    project = task.project
    if project is None:
        enter_folder(folder)
        observed = _run_script(task)
    else:
        own = replace(task, script=enter_copy(task.script, project, folder))
        observed = _run_script(own, limit_seconds=project.limit_seconds)
        _name_originals(observed, folder, project.roots[0])
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    observed.error = add_last_words(observed.error, folder.with_suffix(".log"))
    folder.with_suffix(".found").write_bytes(pickle.dumps(observed))
    if project is not None:
        # threads that the script has left behind would keep the process alive
        os._exit(0)


def _run_script(task: Task, limit_seconds: int = 0) -> Observation:
    observer = ProgramObserver(task)
    observer.install()
    found = observer.observation
    if limit_seconds:
        signal.signal(signal.SIGALRM, partial(_end_script, observer))
        signal.alarm(limit_seconds)
    try:
        with use_threads(task.perturbation.num_threads):
            found.error, found.place = run_script(task.script, task.arguments, seed=task.seed)
    except _OutOfTimeError:
        found.error = f"{OUT_OF_TIME} {limit_seconds} s"
    if limit_seconds:
        signal.alarm(0)
    observer.keep_evaluation()
    return found


def run_script(script: str, arguments: Sequence[str], *, seed: int) -> Tuple[str, Optional[Place]]:
    """Run a script as Python would, and return what ended it, if that was an error, and the user's place of it.

    EnoughStepsError, and exits that report no error, end it well; the end of its time is raised.
    """
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    seed_streams(seed)
    try:
        runpy.run_path(script, run_name="__main__")
    except EnoughStepsError:
        pass
    except _OutOfTimeError:
        raise
    except BaseException as error:  # the process ends with what it has found
        if not isinstance(error, SystemExit) or error.code:
            raised = find_raising_frame(error)
            return f"{type(error).__name__}: {take_first_line(error)}", None if raised is None else raised[1]
    return "", None


def add_last_words(error: str, log: Path) -> str:
    """Add what a program printed last to an exit that has a number alone, as one for wrong words in a command line."""
    if not re.fullmatch(r"SystemExit: \d+", error):
        return error
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines() if line.strip()]
    return f"{error}: {lines[-1]}" if lines else error


def _end_script(observer: ProgramObserver, _number: int, _frame: object) -> None:
    if not observer.is_noting:
        raise _OutOfTimeError
    signal.alarm(1)


# -- copies of projects ------------------------------------------------------------------------------------------------


def enter_copy(script: str, project: ProjectRun, folder: Path) -> str:
    """Go to the working folder in a copy of the project, and name the script there.

    All that is imported and written is the copy's.
    """
    roots = [Path(root) for root in project.roots]
    copy_project(roots, folder, most_bytes=_MOST_BYTES, changed={})
    sys.path[:] = _name_copies(sys.path, roots, folder)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(_name_copies(paths, roots, folder))
    os.chdir(folder / project.working)
    guard = WriteGuard(folder, roots)

    def save(own: Any) -> Any:
        def save_freely(obj: object, f: Any, *args: object, **kwargs: object) -> Any:
            # torch writes a file that it is given the name of in C++
            if isinstance(f, (str, os.PathLike)):
                guard.free(f)
            return own(obj, f, *args, **kwargs)

        return save_freely

    exchange(torch, "save", save)
    return str(folder / os.path.relpath(script, roots[0]))


def _name_copies(paths: List[str], roots: List[Path], folder: Path) -> List[str]:
    """Name the folders of a copy in the place of those of its project."""
    homes = [(path, next((root for root in roots if path and is_within(path, root)), None)) for path in paths]
    return [
        path if root is None else str(folder / os.path.relpath(os.path.realpath(path), os.path.realpath(root)))
        for path, root in homes
    ]


def _name_originals(observed: Observation, folder: Path, root: str) -> None:
    """Let places be those of the project, whose copy is gone soon."""

    def name(place: Optional[Place]) -> Optional[Place]:
        return None if place is None else replace(place, file=name_original(place.file, folder, root))

    observed.place = name(observed.place)
    for training in observed.trainings:
        training.places = {phase: name(place) for phase, place in training.places.items()}


def name_original(file: str, folder: Path, root: str) -> str:
    """Name the file of a project that a file in its copy was made from; others keep their names."""
    return os.path.join(root, os.path.relpath(file, folder)) if file.startswith(f"{folder}{os.sep}") else file
