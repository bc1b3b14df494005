"""Check data files for their readers: one may be missing (F002), or damaged (F001) at a place in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional, Sequence, Union

from porting.diagnostics import Place, PortingError

__all__ = ["make_file_error", "read_encoded_lines", "require_file"]

AnyPath = Union[str, "os.PathLike[str]"]

_ADVICE = "get the file again from where it came from"


def make_file_error(
    path: AnyPath,
    what: str,
    *,
    location: str = "",
    line: Optional[int] = None,
    column: Optional[int] = None,
    help: Union[str, Sequence[str]] = _ADVICE,
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


def read_encoded_lines(path: AnyPath, *, encoding: str, fault: str, help: str = _ADVICE) -> List[str]:
    """Read the lines of a text, whose last line may lack its end; a byte order mark is left out.

    Raises PortingError F002 for a missing file, and F001 at the first byte that the encoding does not have: `fault` is
    a format of `byte` and `position`.
    """
    data = require_file(path).read_bytes()
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        before = data[: error.start].decode(encoding)
        what = fault.format(byte=data[error.start], position=error.start)
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        raise make_file_error(path, what, line=line, column=column, help=help) from None
    # editors of Windows put a mark of the byte order before the first word;
    # `splitlines` takes more than the ends of lines for ends of lines
    lines = text[text.startswith("\ufeff") :].replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]
