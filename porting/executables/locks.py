"""Locks on files that end with the process that holds them, however it ends."""

from __future__ import annotations

import errno
import os
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator, Optional, Union

if sys.platform != "win32":
    import fcntl

__all__ = ["LockUnsupportedError", "is_free", "lock_file", "try_lock"]

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
    try:
        yield True
    finally:
        # removed before it is free: who waits finds out that the file it has locked is no longer there
        with suppress(OSError):
            path.unlink()
        # closing it would not do: forked processes share the lock
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


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
