"""Write the files that a command is asked for, and refuse those that cannot be written, if possible before the work.

A folder that is not there may be a slip of the pen: no verb makes it.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

from porting.diagnostics import ExecutableError
from porting.support.atomic_files import write_atomically

__all__ = ["explain_write_errors", "require_folders", "write_output"]


def require_folders(*paths: Optional[Path]) -> None:
    """Refuse files in folders that are not there; raises ExecutableError E029."""
    for path in filter(None, paths):
        if not path.absolute().parent.is_dir():
            message = f"`{path}` cannot be written: there is no folder `{path.parent}`"
            raise ExecutableError.of("E029", message=message, help="make the folder, or name a file in another one")


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn an error of writing a file into a finding."""
    require_folders(path)
    try:
        yield
    except OSError as error:
        raise ExecutableError.of(
            "E029",
            message=f"`{path}` cannot be written: {error.strerror or error}",
            help="choose a folder that is there, that you may write to, and that has room",
        ) from error


def write_output(path: Path, content: bytes) -> None:
    """Write a file as a whole or not at all; raises ExecutableError E029 where that is not possible."""
    with explain_write_errors(path):
        write_atomically(path, content)
