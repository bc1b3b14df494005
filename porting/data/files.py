"""Errors of readers of data files: a file is missing (F002), or damaged (F001) at a place in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional, Sequence, Union

from porting.diagnostics import Place, PortingError

__all__ = ["make_file_error", "require_file"]

AnyPath = Union[str, "os.PathLike[str]"]


def make_file_error(
    path: AnyPath,
    what: str,
    *,
    location: str = "",
    line: Optional[int] = None,
    column: Optional[int] = None,
    help: Union[str, Sequence[str]] = "get the file again from where it came from",
) -> PortingError:
    """Make the error F001 for `path`; `what` states the fault.

    A file of text has the `line` and `column` of the fault, counted from 1, and its line is shown; another one has a
    `location`, as in "byte 16" or "dataset `Data/labels`, event 3".

    >>> error = make_file_error("light.h5", "7 extents for 5 events", location="dataset `voxel_extents`")
    >>> print(error)
    error[F001]: `light.h5` cannot be read
       = note: dataset `voxel_extents`: 7 extents for 5 events
       = help: get the file again from where it came from
       = more: porting explain F001 (damaged-data-file)
    """
    file = os.fspath(path)
    place = Place(file, line, column) if line is not None else None
    found = f"{location}: {what}" if location else what
    return PortingError.of(
        "F001",
        message=f"`{file}` cannot be read",
        place=place,
        label=found if place else "",
        notes=() if place else found,
        help=help,
    )


def require_file(path: AnyPath, *, help: Union[str, Sequence[str]] = "check the path") -> Path:
    """Return `path` as a Path; PortingError F002 with `help` unless there is a file."""
    file = Path(path)
    if file.is_file():
        return file
    found = "it is a folder" if file.is_dir() else "there is no such file"
    raise PortingError.of("F002", message=f"`{os.fspath(path)}` cannot be opened", notes=found, help=help)
