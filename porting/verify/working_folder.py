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

__all__ = ["enter_folder", "link_folder"]

# what is below folders of more, such as data, is found by a link to the folder
_MOST_LINKS = 20_000
_CHANGING = ("os.chmod", "os.chown", "os.truncate", "os.utime", "sqlite3.connect")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_TRUNC


def link_folder(folder: Path, working: Path) -> None:
    """Make a working folder in which a program finds what lies in `folder`, and leaves what it makes.

    Hidden folders, and those with too many files, are links.
    """
    working.mkdir()
    # temporary files may lie in the folder itself
    around = {os.path.realpath(parent) for parent in working.parents}
    waiting, num_links = deque([(os.path.abspath(folder), working)]), 0
    while waiting:
        source, target = waiting.popleft()
        entries = [*os.scandir(source)]
        num_links += len(entries)
        if num_links > _MOST_LINKS and target != working:
            target.rmdir()
            target.symlink_to(source)
            continue
        for entry in entries:
            own = target / entry.name
            is_linked = entry.name.startswith(".") or os.path.realpath(entry.path) in around
            if entry.is_dir(follow_symlinks=False) and not is_linked and os.access(entry.path, os.R_OK | os.X_OK):
                own.mkdir()
                waiting.append((entry.path, own))
            else:
                own.symlink_to(entry.path)


def enter_folder(working: Path) -> None:
    """Let this process work in a folder, and write into copies of its own where files in there are links.

    What Python and torch open is seen; a library that opens files in C writes through a link.
    """
    os.chdir(working)
    root = os.path.realpath(working)

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
