"""Find what `porting convert` is asked to convert: the folder of the project, the script, and its command line.

A project with several programs that train is not guessed at: the user names one.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from porting.diagnostics import ExecutableError, join_names
from porting.source.project import Project, read_programs
from porting.source.walk import collect_facts

__all__ = ["Target", "find_target"]

_MOST_UNREAD = 5


@dataclass(frozen=True)
class Target:
    """A program to convert: `script` and its `arguments` as they are given in the folder `root`."""

    root: Path
    script: str
    arguments: Tuple[str, ...] = ()
    is_run: bool = False
    """Whether a command line was given, so that it may be run."""


def find_target(path: str, run: Optional[str]) -> Target:
    """Find the program of a path and a command line such as `train.py --steps 2`.

    Raises ExecutableError E020 where there is none, or more than one that trains and none is named.
    """
    if not os.path.exists(path):
        raise ExecutableError.of("E020", message=f"there is no project `{path}`", help="name a folder or a script")
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    words = [word for word in shlex.split(run or "") if not _is_python(word)]
    if words:
        script = _find_script(words[0], folder)
        return Target(folder, os.path.relpath(script, folder), tuple(words[1:]), is_run=True)
    if not os.path.isdir(path):
        return Target(folder, Path(path).name)
    project = read_programs([folder])
    programs = _list_programs(project, folder)
    if len(programs) == 1:
        return Target(folder, programs[0])
    listed = f"{len(programs)} programs that train: {join_names(programs, most=8)}"
    unread = [f"not read: `{one.place.file if one.place else path}`: {one.message}" for one in project.findings]
    raise ExecutableError.of(
        "E020",
        message=f"`{path}` has {listed if programs else 'no program that trains'}",
        notes=tuple(unread[:_MOST_UNREAD]),
        help="name the command line of the one to convert: `--run 'train.py --epochs 1'`",
    )


def _is_python(word: str) -> bool:
    return os.path.basename(word).startswith("python") and not word.endswith(".py")


def _find_script(word: str, folder: Path) -> Path:
    for found in (folder / word, Path(word)):
        if found.is_file():
            return found
    raise ExecutableError.of(
        "E020",
        message=f"there is no script `{word}` in `{folder}`",
        help="name it as it lies below the project's folder",
    )


def _list_programs(project: Project, folder: Path) -> List[str]:
    """List the files from which a backward pass is reached, below a folder."""
    calls = collect_facts(project).list_methods("backward")
    return sorted({os.path.relpath(name, folder) for call in calls for name in call.where.programs})
