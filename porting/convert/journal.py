"""Change several files of a folder as one: a journal says how to go back, and a process that watches does so.

Until the change is complete, the end of the writing process, whatever ends it, leads back. The watcher is a process of
its own, out of reach of Ctrl-C; where it was killed as well, the next change of the folder begins with going back.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional

from porting.diagnostics import PortingError
from porting.executables.folders import LockUnsupportedError, try_lock
from porting.support.atomic_files import sync_folder

__all__ = ["change_files", "finish", "make_folder", "watch"]

_JOURNAL, _DONE = ".porting-conversion.json", ".porting-conversion-done.json"
_NEW, _OLD = ".porting-new", ".porting-old"
_LOOK_SECONDS, _PATIENCE_SECONDS = 0.2, 5.0
# the paths go to the end, so that they hide nothing that the watcher finds by itself
_START = (
    "import sys; sys.path.extend({paths!r}); from porting.convert.journal import watch; watch({folder!r}, {parent})"
)


def change_files(folder: Path, contents: Mapping[Path, bytes], before: Mapping[Path, bytes]) -> None:
    """Give files, by their real paths, new contents: all of them or none; those without a `before` are new.

    Raises PortingError X009 where one is no longer what it was, X027 where another process changes the folder; OSError.
    """
    files = {str(path): _make_digest(content) for path, content in contents.items()}
    made = sorted({str(above) for path in contents for above in path.parents if not above.exists()})
    with _journalled(folder, files=files, old=[*map(str, before)], folders=made):
        for name in made:
            os.mkdir(name)
        for path, content in contents.items():
            _stage(path, content, before.get(path))
        for path in contents:
            os.replace(_beside(path, _NEW), path)
        for above in {path.parent for path in contents}:
            sync_folder(above)


@contextmanager
def make_folder(destination: Path) -> Iterator[Path]:
    """Give a path to make a folder at, which becomes `destination` when the block ends well, and is removed otherwise.

    Raises PortingError X027 where another process makes one there; OSError.
    """
    unfinished = _beside(destination, _NEW)
    with _journalled(destination.parent, tree=str(unfinished)):
        yield unfinished
        os.rename(unfinished, destination)
        sync_folder(destination.parent)


def finish(folder: Path) -> None:
    """Go back to before an unfinished change of a folder, or clear away what a finished one has kept."""
    journal, done = folder / _JOURNAL, folder / _DONE
    if journal.exists():
        _go_back(json.loads(journal.read_text("utf-8")))
        journal.unlink()
    if done.exists():
        for name in json.loads(done.read_text("utf-8")).get("old", ()):
            _remove(_beside(Path(name), _OLD))
        done.unlink()
    _remove(_beside(journal, _NEW))


def watch(folder: str, parent: int) -> None:
    """Wait for the end of a change, which is that of the standard input or of the process that makes it; finish it."""
    sys.stdout.write("watching\n")
    sys.stdout.flush()
    while os.getppid() == parent and not select.select([0], [], [], _LOOK_SECONDS)[0]:
        pass
    finish(Path(folder))


# -- the change --------------------------------------------------------------------------------------------------------


@contextmanager
def _journalled(folder: Path, **plan: Any) -> Iterator[None]:
    """Watch over a block that does what `plan` says; when it ends well, it is the change that stays."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        _lock(folder, lock)
        finish(folder)
        with _watched(folder, lock):
            _write_whole(folder / _JOURNAL, json.dumps(plan).encode())
            sync_folder(folder)
            yield
            os.replace(folder / _JOURNAL, folder / _DONE)
            sync_folder(folder)
    finally:
        os.close(lock)


def _lock(folder: Path, lock: int) -> None:
    # the watcher of one that has just died is done in a moment
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with suppress(LockUnsupportedError):
        while not try_lock(lock):
            if time.monotonic() > deadline:
                raise PortingError.of(
                    "X027",
                    message=f"another conversion writes into `{folder}`",
                    help="wait until it has ended, and run `porting convert` again",
                )
            time.sleep(_LOOK_SECONDS / 4)


@contextmanager
def _watched(folder: Path, lock: int) -> Iterator[None]:
    """Let another process finish the change at the end of this block, or of this process; it shares the lock."""
    start = _START.format(paths=[path for path in sys.path if path], folder=str(folder), parent=os.getpid())
    watcher = subprocess.Popen(
        [sys.executable, "-c", start],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=[lock],
    )
    assert watcher.stdin is not None
    assert watcher.stdout is not None
    try:
        watcher.stdout.readline()
        yield
    finally:
        watcher.stdin.close()
        watcher.stdout.close()
        watcher.wait()
        # nothing is left to do, unless somebody has killed the watcher
        finish(folder)


def _stage(path: Path, content: bytes, before: Optional[bytes]) -> None:
    """Write a file's new content beside it, and keep the file itself under a second name."""
    new, old = _beside(path, _NEW), _beside(path, _OLD)
    if before is not None:
        try:
            os.link(path, old)
        except OSError:  # not every file system has such links
            _write_whole(old, path.read_bytes())
            shutil.copystat(path, old)
    _write(new, content)
    if before is None:
        return
    if path.read_bytes() != before:
        raise PortingError.of(
            "X009", message=f"`{path}` has changed since it was read", help="run `porting convert` again"
        )
    shutil.copymode(path, new)
    owner = path.stat()
    with suppress(OSError):  # a file of somebody else
        os.chown(new, owner.st_uid, owner.st_gid)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there as a whole or not at all; `finish` knows the name of the part."""
    _write(_beside(path, _NEW), content)
    os.replace(_beside(path, _NEW), path)


def _write(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


# -- and the way back --------------------------------------------------------------------------------------------------


def _go_back(plan: Dict[str, Any]) -> None:
    for name, digest in plan.get("files", {}).items():
        path = Path(name)
        new, old = _beside(path, _NEW), _beside(path, _OLD)
        is_new = name not in plan["old"] and not new.exists() and path.exists()
        if old.exists():
            # renaming one of two names of a file, which is there yet, does nothing
            os.replace(old, path)
            _remove(old)
        elif is_new and _make_digest(path.read_bytes()) == digest:
            path.unlink()
        _remove(new)
        _remove(_beside(old, _NEW))
    for name in reversed(plan.get("folders", ())):
        with suppress(OSError):  # it was not made, or somebody else has put something there
            os.rmdir(name)
    if "tree" in plan:
        shutil.rmtree(plan["tree"], ignore_errors=True)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(f".{path.name}{ending}")


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        path.unlink()


def _make_digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
