"""Make working folders in which programs find the user's files, and change none of them.

The folders in them are new, the files are links; a file that is opened to be written is a copy by then.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections import deque
from pathlib import Path
from typing import Any, Tuple

import torch

from porting.observe.training_programs import Run, watch_calls
from porting.support.project_copies import find_project

__all__ = ["enter_folder", "link_folder"]

# what is below folders of more, such as data, is found by a link to the folder
_MOST_LINKS = 20_000
_CHANGING = ("os.chmod", "os.chown", "os.truncate", "os.utime", "sqlite3.connect")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC


def link_folder(folder: Path, working: Path) -> None:
    """Make a working folder in which a program finds what lies in `folder`, and leaves what it makes.

    What lies beside it in its Git project is found beside it. Hidden folders, and those with too many files, are links.
    """
    source = Path(os.path.abspath(folder))
    project = find_project(source)
    inner = working.with_name(f"{working.name}-project") / source.relative_to(project)
    inner.mkdir(parents=True)
    working.symlink_to(inner)
    levels = 1 + len(source.relative_to(project).parts)
    waiting = deque([*zip((source, *source.parents), (inner, *inner.parents))][:levels])
    # temporary files may lie in the project itself
    fixed, around = {own for _place, own in waiting}, {os.path.realpath(parent) for parent in working.parents}
    num_links = 0
    while waiting:
        place, own = waiting.popleft()
        entries = [*os.scandir(place)]
        num_links += len(entries)
        if num_links > _MOST_LINKS and own not in fixed:
            own.rmdir()
            own.symlink_to(place)
            continue
        for entry in entries:
            link = own / entry.name
            if link in fixed:
                continue
            if _is_copied(entry) and os.path.realpath(entry.path) not in around:
                link.mkdir()
                waiting.append((Path(entry.path), link))
            else:
                link.symlink_to(entry.path)


def _is_copied(entry: os.DirEntry[str]) -> bool:
    is_folder = entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    return is_folder and os.access(entry.path, os.R_OK | os.X_OK)


def enter_folder(working: Path) -> None:
    """Let this process work in a folder, and write into copies of its own where files in there are links.

    What Python and torch open is seen; a library that opens files in C writes through a link.
    """
    os.chdir(working)
    # with what lies beside it
    root = os.path.realpath(working.parent)

    def own(path: str, *, is_kept: bool) -> None:
        path = os.path.abspath(path)
        folder = os.path.realpath(os.path.dirname(path))
        if os.path.islink(path) and (folder + os.sep).startswith(root + os.sep):
            original = os.path.realpath(path)
            os.unlink(path)
            if is_kept and os.path.isfile(original):
                shutil.copyfile(original, path)

    def see(event: str, arguments: Tuple[Any, ...]) -> None:
        writes = event in _CHANGING or (event == "open" and arguments[2] & _WRITING)
        if writes and isinstance(arguments[0], (str, bytes, os.PathLike)):
            own(os.fsdecode(arguments[0]), is_kept=event != "open" or not arguments[2] & os.O_TRUNC)

    def save(run: Run, thing: object, file: Any, *args: object, **kwargs: object) -> None:
        # in C
        if isinstance(file, (str, os.PathLike)):
            own(os.fspath(file), is_kept=False)
        run(thing, file, *args, **kwargs)

    sys.addaudithook(see)
    for module in (torch, torch.serialization):
        watch_calls(module, "save", save)
