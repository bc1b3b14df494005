"""Result files: written whole after every cell, so that what was measured survives whatever ends the run."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from porting.diagnostics import PortingError
from porting.support.atomic_files import write_atomically

from .cells import Cell
from .machine import describe_machine
from .schema import check, load_schema

__all__ = ["SCHEMA_NAME", "SCHEMA_VERSION", "ResultFile", "read_results"]

SCHEMA_NAME, SCHEMA_VERSION = "porting-bench", 1
_SHOWN_PROBLEMS = 5


class ResultFile:
    """The results of a run, kept in a file if there is a path for one; cells that have not run yet are in it, too.

    `content` is everything, as the file has it.
    """

    def __init__(self, cells: Sequence[Cell], path: Optional[Path] = None) -> None:
        """Note all cells as not run, and write the file: what cannot be written must not be found out at the end."""
        self._path = path
        self.content: Dict[str, Any] = {
            "schema": SCHEMA_NAME,
            "version": SCHEMA_VERSION,
            "created": _now(),
            "finished": None,
            "complete": False,
            "machine": describe_machine(),
            "cells": [cell.record("not_run") for cell in cells],
        }
        self._write()

    def put(self, index: int, record: Dict[str, Any]) -> None:
        """Put in what became of a cell."""
        self.cells[index] = _replace_not_finite(record)
        self._write()

    def finish(self) -> None:
        """Note that every cell has had its turn."""
        self.content.update(finished=_now(), complete=True)
        self._write()

    @property
    def cells(self) -> List[Dict[str, Any]]:
        """The records of all cells."""
        records: List[Dict[str, Any]] = self.content["cells"]
        return records

    def _write(self) -> None:
        if self._path is not None:
            write_atomically(self._path, (json.dumps(self.content, indent=2, allow_nan=False) + "\n").encode())


def read_results(path: Union[str, Path]) -> Dict[str, Any]:
    """Read a result file; raises PortingError T005 for what is none, or one of another version."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        problems = [f"it cannot be read: {error.strerror or error}"]
    except (UnicodeDecodeError, ValueError) as error:
        problems = [f"{type(error).__name__}: {error}"]
    else:
        if isinstance(content, dict) and content.get("version", SCHEMA_VERSION) != SCHEMA_VERSION:
            problems = [f"its version is {content['version']!r}, this porting reads {SCHEMA_VERSION}"]
        else:
            problems = check(content, load_schema())
    if problems:
        more = [f"and {len(problems) - _SHOWN_PROBLEMS} more"] if len(problems) > _SHOWN_PROBLEMS else []
        raise PortingError.of(
            "T005",
            message=f"`{path}` is no result file of `porting bench`",
            notes=problems[:_SHOWN_PROBLEMS] + more,
            help="name a file that `porting bench --json FILE` has written",
        )
    result: Dict[str, Any] = content
    return result


def _replace_not_finite(value: Any) -> Any:
    """Replace numbers that JSON does not have by null: a loss that is not a number is one of them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _replace_not_finite(item) for key, item in value.items()}
    return [_replace_not_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
