"""Write a log of a training as a table of comma-separated values, with a column for each name."""

from __future__ import annotations

import csv
import io
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Union

from ..diagnostics import ExecutableError
from ..support.atomic_files import write_atomically
from .loggers import Value

__all__ = ["CsvLogger"]


class CsvLogger:
    """A logger that needs no library: a file with a row for each time that something was logged.

    The settings stand beside it, in a file of the same name that ends in `.json`. A training that goes on from a
    checkpoint writes on, and the rows of steps that it makes again are replaced. The file of an earlier training, of
    which nothing would stay, is kept under a name with a number. Raises ExecutableError E029 for a file that cannot be
    written.
    """

    def __init__(self, path: Union[str, os.PathLike[str]] = "logs/metrics.csv") -> None:
        self.path = Path(path)
        self._columns: List[str] = ["step"]
        self._rows: List[Dict[str, str]] = []
        self._is_begun = False

    def log_hyperparams(self, params: Dict[str, Value]) -> None:
        """Write the settings."""
        with _explain_write_errors(self.path):
            write_atomically(self.path.with_suffix(".json"), f"{json.dumps(params, indent=1, default=str)}\n".encode())

    def log_metrics(self, metrics: Dict[str, float], step: Optional[int] = None) -> None:
        """Add a row; numbers keep all their digits."""
        with _explain_write_errors(self.path):
            if not self._is_begun:
                self._is_begun = True
                self._continue_before(step or 0)
            row = {"step": "" if step is None else str(step), **{name: repr(metrics[name]) for name in metrics}}
            new = [name for name in row if name not in self._columns]
            self._columns += new
            self._rows.append(row)
            if new or len(self._rows) == 1:
                write_atomically(self.path, self._write_table(self._rows, has_header=True))
            else:
                with open(self.path, "ab") as file:
                    file.write(self._write_table([row], has_header=False))

    def finalize(self, status: str) -> None:
        """Do nothing: each row is written when it is logged."""

    def _continue_before(self, step: int) -> None:
        """Keep the rows of an earlier part of the training, or else the whole file of another one."""
        if not self.path.exists():
            return
        with open(self.path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = [row for row in reader if (row.get("step") or "").isdigit() and int(row["step"]) < step]
            columns = list(reader.fieldnames or [])
        if rows:
            self._columns, self._rows = columns, rows
            write_atomically(self.path, self._write_table(rows, has_header=True))
        else:
            self.path.rename(_name_kept_file(self.path))

    def _write_table(self, rows: List[Dict[str, str]], *, has_header: bool) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, restval="", lineterminator="\n", extrasaction="ignore")
        if has_header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()


def _name_kept_file(path: Path) -> Path:
    number = 1
    while path.with_name(f"{path.stem}-{number}{path.suffix}").exists():
        number += 1
    return path.with_name(f"{path.stem}-{number}{path.suffix}")


@contextmanager
def _explain_write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ExecutableError.at_caller(
            "E029",
            message=f"the log `{path}` cannot be written: {error.strerror or error}",
            help="name a file in a folder that can be written to: `CsvLogger('logs/metrics.csv')`",
        ) from error
