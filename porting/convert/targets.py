"""Find what `porting convert` is asked to convert: the folder of the project, the script, and its command line.

A project with several programs that train is not guessed at: the user names one.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator, List, Optional, Sequence, Tuple

from porting.convert.device_option import VARIABLE
from porting.diagnostics import ExecutableError, join_names
from porting.source.project import Project, read_programs
from porting.source.walk import collect_facts

__all__ = ["Target", "as_own_process", "find_target"]

_LAUNCHERS = ("torchrun", "torch.distributed", "accelerate")
_PLACE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}

_MOST_UNREAD = 5


@dataclass(frozen=True)
class Target:
    """A program to convert: `script` and its `arguments` as they are given in the folder `root`."""

    root: Path
    script: str
    arguments: Tuple[str, ...] = ()
    is_run: bool = False
    """Whether a command line was given, so that it may be run."""
    is_launched: bool = False
    """Whether that was one of a launcher of processes, `torchrun`; the program is run as the only one of them."""


def find_target(path: str, run: Optional[str]) -> Target:
    """Find the program of a path and a command line such as `train.py --steps 2`.

    Raises ExecutableError E020 where there is none, or more than one that trains and none is named.
    """
    if not os.path.exists(path):
        raise ExecutableError.of("E020", message=f"there is no project `{path}`", help="name a folder or a script")
    folder = Path(path) if os.path.isdir(path) else Path(path).parent
    given = shlex.split(run or "")
    words = _leave_launcher(given)
    if given and not words:
        raise ExecutableError.of(
            "E020",
            message=f"`{run}` names no script",
            help="name it by its file: `--run 'package/train.py --epochs 1'`",
        )
    if words:
        script = _find_script(words[0], folder)
        before = " ".join(given[: len(given) - len(words)])
        is_launched = any(launcher in before for launcher in _LAUNCHERS)
        return Target(folder, os.path.relpath(script, folder), tuple(words[1:]), is_run=True, is_launched=is_launched)
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


def _leave_launcher(words: Sequence[str]) -> List[str]:
    """Leave of a command line what Python and launchers do not take: `torchrun --nproc-per-node 1 train.py`."""
    if words and not _is_starter(words[0]):
        return [*words]
    script = next((n for n, word in enumerate(words) if word.endswith(".py")), len(words))
    return [*words[script:]]


def _is_starter(word: str) -> bool:
    name = os.path.basename(word)
    return name.startswith("python") and not word.endswith(".py") or name in ("torchrun", "accelerate", "poprun")


@contextlib.contextmanager
def as_own_process(target: Target) -> Iterator[None]:
    """Let what is started here choose its device itself, and be the only process of a launcher that it has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    place = dict(_PLACE, MASTER_PORT=str(port)) if target.is_launched else {}
    before = {name: os.environ.pop(name) for name in (*place, VARIABLE) if name in os.environ}
    os.environ.update(place)
    try:
        yield
    finally:
        for name in place:
            del os.environ[name]
        os.environ.update(before)


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
