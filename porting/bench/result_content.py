"""Classes of what a result file holds. Reading a file checks it against their types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Mapping, Optional, Tuple

from .choices import Choices
from .report import BenchReport

__all__ = ["Machine", "Record", "ResultContent", "Schema", "Status"]


class Schema(Enum):
    """The one name that a file may have for its format."""

    BENCH = "porting-bench"


class Status(Enum):
    """What has become of a cell."""

    DONE = "done"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Machine:
    """The machine of a run; None where it does not tell."""

    processor: str
    num_cores: int
    memory_bytes: Optional[int]
    system: str
    python: str
    torch: Optional[str]
    porting: str
    omp_num_threads: Optional[str]
    load_average: Optional[float]


@dataclass(frozen=True)
class Record:
    """One cell; `result` is None unless it was measured."""

    name: str
    target: str
    choices: Choices
    repeat: int
    status: Status
    reason: str
    seconds: float
    demanded: Optional[float]
    result: Optional[BenchReport]


@dataclass(frozen=True)
class ResultContent:
    """A whole file."""

    schema: Schema
    version: int
    created: str
    finished: Optional[str]
    complete: bool
    machine: Machine
    cells: Tuple[Record, ...]
    summary: Optional[Mapping[str, Any]] = None
