"""Write files so that they are there as a whole or not at all, whatever happens to the process that writes them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Iterator, Union

__all__ = ["replacing_file", "sync_folder", "write_atomically"]

# so many characters of a name stay in the temporary one, which must not become too long for a file system
_KEPT_OF_NAME = 50


@contextmanager
def replacing_file(path: Union[str, os.PathLike[str]]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of `path` when the block ends, and only if it ends well.

    No reader ever sees a part of it: until then, and after an error, the old file is there. Of a link, the file that
    it leads to is replaced. Devices and pipes are written directly. The folder must exist (FileNotFoundError).
    """
    destination = Path(os.path.realpath(os.fspath(path)))
    if destination.exists() and not destination.is_file():
        with open(destination, "wb") as file:
            yield file
        return
    unfinished = destination.with_name(f".{destination.name[:_KEPT_OF_NAME]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with open(unfinished, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, destination)
    except OSError as error:
        if error.filename == str(unfinished):  # the user does not know that name
            error.filename = str(destination)
        raise
    finally:
        if unfinished.exists():
            unfinished.unlink()


def write_atomically(path: Union[str, os.PathLike[str]], content: bytes) -> None:
    """Write a file, and make the folders above it, so that no reader ever sees a part of it."""
    Path(os.path.realpath(os.fspath(path))).parent.mkdir(parents=True, exist_ok=True)
    with replacing_file(path) as file:
        file.write(content)


def sync_folder(folder: Union[str, os.PathLike[str]]) -> None:
    """Make new and changed names in `folder` survive a loss of power, where the system supports that."""
    if os.name != "posix":
        return  # other systems open no folders
    descriptor = os.open(os.fspath(folder), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
