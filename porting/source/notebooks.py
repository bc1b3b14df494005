"""Read a notebook as cells of Python, with the lines that only IPython understands blanked.

`files` reads notebooks by it, so that a finding names the cell.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Iterator, List, Type, TypeVar

__all__ = ["Cell", "NotebookError", "blank_magics", "read_cells"]

_Part = TypeVar("_Part")


class NotebookError(ValueError):
    """A file that is no notebook of Python's."""


@dataclass(frozen=True)
class Cell:
    """A cell of code and its number among all cells, counted from 1 as editors do."""

    number: int
    text: str


def read_cells(data: bytes) -> List[Cell]:
    """List the cells of code of a notebook of format 3 or 4.

    Raises NotebookError where the file is no JSON, no notebook, or one of another language.
    """
    try:
        notebook = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise NotebookError(f"it is no JSON: {error}") from error
    if not isinstance(notebook, dict):
        raise NotebookError("it is JSON, but no notebook")
    metadata = _get(notebook, "metadata", dict)
    kernel, info = _get(metadata, "kernelspec", dict), _get(metadata, "language_info", dict)
    language = (_get(kernel, "language", str) or _get(info, "name", str)).lower().rstrip("0123456789")
    if language not in ("", "python"):
        raise NotebookError(f"it is a notebook of {language}")
    holders = [notebook, *_get(notebook, "worksheets", list)]
    cells = [cell for holder in holders for cell in _get(holder, "cells", list)]
    if not cells and "nbformat" not in notebook:
        raise NotebookError("it is JSON, but no notebook")
    return [
        Cell(number, _join_lines(cell))
        for number, cell in enumerate(cells, start=1)
        if _get(cell, "cell_type", str) == "code"
    ]


def _get(holder: Any, name: str, kind: Type[_Part]) -> _Part:
    """Get a part of what should be a dictionary; an empty one where it is not, or has none of this kind."""
    part = holder.get(name) if isinstance(holder, dict) else None
    return part if isinstance(part, kind) else kind()


def _join_lines(cell: dict) -> str:
    source = cell.get("source", cell.get("input", ""))
    text = "".join(map(str, source)) if isinstance(source, list) else str(source)
    return re.sub("\r\n?", "\n", text)


# magics whose cell is Python all the same, after the first line
_PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3", "pypy", "memit", "mprun", "heat", "scalene")
_LINE_MAGIC = re.compile(r"^(\s*)([%!?])(.*)$")
_TIMED_LINE = re.compile(r"^(\s*)%{1,2}(time|timeit|prun|memit)\s+(?!-)(.*)$")
_ASSIGNED = re.compile(r"^(\s*[\w., \[\]'\"]+=\s*)[%!].*$")
_HELP = re.compile(r"^(\s*)[\w.*]+\?{1,2}\s*$")


def blank_magics(text: str) -> str:
    """Replace what only IPython understands by Python on the same lines that does nothing.

    >>> blank_magics("!pip install timm")
    'pass'
    """
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].lstrip().startswith("%%"):
        words = lines[first].lstrip()[2:].split()
        if not words or words[0] not in _PYTHON_MAGICS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    return "\n".join(_blank_lines(lines))


def _blank_lines(lines: List[str]) -> Iterator[str]:
    goes_on = False
    for line in lines:
        blanked = "" if goes_on else _blank_line(line)
        goes_on = line.endswith("\\") and (goes_on or blanked != line)
        yield blanked


def _blank_line(line: str) -> str:
    timed = _TIMED_LINE.match(line)
    if timed and timed[3]:
        # a statement in the same columns
        return timed[1] + "0".ljust(len(line) - len(timed[1]) - len(timed[3]) - 1) + ";" + timed[3]
    magic = _LINE_MAGIC.match(line) or _HELP.match(line)
    if magic:
        return f"{magic[1]}pass"
    assigned = _ASSIGNED.match(line)
    return f"{assigned[1]}None" if assigned else line
