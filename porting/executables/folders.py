"""Folders that appear and disappear as a whole, and clearing away what dead processes left of them.

Locks on files end with the process that holds them, however it ends.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
import time
import weakref
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Set, Tuple, Union

from .entry import MANIFEST

if sys.platform != "win32":
    import fcntl

__all__ = [
    "STALE_SECONDS",
    "LockUnsupportedError",
    "is_free",
    "lock_file",
    "new_folder",
    "remove_folder",
    "sweep",
    "temporary_folder",
    "try_lock",
]

STALE_SECONDS = 10.0
"""What nobody holds and nobody changed for so long was left by a process that died."""

# Where there are no locks, only time tells.
_STALE_WITHOUT_LOCKS_SECONDS = 86400.0
_NEW, _REMOVING = ".new-", ".removing-"


@contextmanager
def new_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in `parent` that is locked, and is gone when the block ends unless it was renamed.

    Raises LockUnsupportedError where there are no locks.
    """
    folder = parent / f"{_NEW}{os.getpid()}-{os.urandom(4).hex()}"
    folder.mkdir(mode=0o755)
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, folder, ignore_errors=True)
        descriptor = os.open(folder, os.O_RDONLY)
        undone.callback(os.close, descriptor)
        try_lock(descriptor)
        yield folder


@contextmanager
def temporary_folder() -> Iterator[Tuple[Path, Callable[[Any], object]]]:
    """Make a folder for what is compiled, and a function that leaves it to an executable which was loaded from it.

    It is gone when the block ends, or with the executable. OSError if it cannot be made.
    """
    with ExitStack() as undone:
        folder = Path(tempfile.mkdtemp(prefix="porting-"))
        undone.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder, lambda executable: weakref.finalize(executable, undone.pop_all().close)


def remove_folder(folder: Path, *, patience_seconds: float = 0.0, is_forced: bool = False) -> bool:
    """Remove an entry, at once for everybody who looks; False if somebody is loading it, or if it cannot be removed.

    It is waited for a reader for `patience_seconds`; then, if `is_forced`, no longer.
    """
    held = _lock_alone(folder / MANIFEST, patience_seconds)
    if held is None and not is_forced and (folder / MANIFEST).exists():
        return False
    gone = folder.with_name(f"{_REMOVING}{os.getpid()}-{os.urandom(4).hex()}")
    try:
        os.rename(folder, gone)
    except OSError:
        return False
    finally:
        if held is not None:
            os.close(held)
    _remove_path(gone)
    return True


def sweep(programs: Path) -> int:
    """Clear away what dead processes left in the store; returns how many things."""
    left = []
    for path in _list_paths(programs):
        if path.name.startswith(_REMOVING) or (path.name.startswith(_NEW) and _is_abandoned(path)):
            left.append(path)
    for path in [*_list_paths(programs / ".locks"), *_list_paths(programs / ".failures")]:
        if (path.suffix == ".lock" or path.name.startswith(".")) and _is_abandoned(path):
            left.append(path)
    return sum(map(_remove_path, left))


def _lock_alone(path: Path, patience_seconds: float) -> Optional[int]:
    """Open and lock a file that nobody else holds; None if somebody does, or if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    deadline = time.monotonic() + patience_seconds
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(0.05)
    except LockUnsupportedError:
        pass  # then nobody can hold it
    return descriptor


def _is_abandoned(path: Path) -> bool:
    """Tell whether the process that made `path` has died; one that was made just now may not be locked yet."""
    try:
        age = time.time() - path.stat().st_mtime
        return age > STALE_SECONDS and is_free(path)
    except LockUnsupportedError:
        return age > _STALE_WITHOUT_LOCKS_SECONDS
    except OSError:
        return False


def _remove_path(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
    return not os.path.lexists(path)


def _list_paths(folder: Path) -> List[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []


_POLL_SECONDS = (0.01, 0.5)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class LockUnsupportedError(OSError):
    """The file system, or the operating system, has no such locks."""


def try_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Lock an open file or folder if nobody else has it; True when it is locked.

    Raises LockUnsupportedError where there are no locks.
    """
    if sys.platform == "win32":
        raise LockUnsupportedError("this system has no `flock`")
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
            return False
        if error.errno in (*_NO_LOCKS, errno.EBADF):
            raise LockUnsupportedError(error.errno, f"no locks here: {error.strerror}") from error
        raise
    return True


def is_free(path: Union[str, os.PathLike[str]]) -> bool:
    """Tell whether no living process has locked the file or folder at `path`; True where it is gone.

    Raises LockUnsupportedError where there are no locks.
    """
    try:
        descriptor = os.open(os.fspath(path), os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        return try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def lock_file(
    path: Path, *, timeout_seconds: float, tell_after_seconds: float = 2.0, tell: Optional[Callable[[], None]] = None
) -> Iterator[bool]:
    """Hold the lock that the file `path` stands for; yields False when it could not be had in time.

    Waiting for longer than `tell_after_seconds` calls `tell` once. The file is made, and removed again by the holder.
    Raises OSError where the file cannot be made, LockUnsupportedError where there are no locks.
    """
    began, pause = time.monotonic(), _POLL_SECONDS[0]
    descriptor = _try_lock_file(path)
    while descriptor is None:
        waited = time.monotonic() - began
        if tell is not None and waited >= tell_after_seconds:
            tell()
            tell = None
        if waited >= timeout_seconds:
            yield False
            return
        time.sleep(min(pause, timeout_seconds - waited))
        pause = min(pause * 1.5, _POLL_SECONDS[1])
        descriptor = _try_lock_file(path)
    _HELD.add(descriptor)
    try:
        yield True
    finally:
        _HELD.discard(descriptor)
        # removed before it is free: who waits finds out that the file it has locked is no longer there
        with suppress(OSError):
            path.unlink()
        # closing it would not do: a process that is just being forked shares the lock
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


_HELD: Set[int] = set()


def _close_held() -> None:
    """Let go of the locks in a process that was forked: they end with the one that took them, even if it is killed."""
    while _HELD:
        os.close(_HELD.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)


def _try_lock_file(path: Path) -> Optional[int]:
    """Open and lock the file; None if another process has it, or has just removed it."""
    with ExitStack() as undone:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        undone.callback(os.close, descriptor)
        with suppress(FileNotFoundError):
            if try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                undone.pop_all()
                return descriptor
    return None
