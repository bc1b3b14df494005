"""These classes describe what a result file holds.

`results` checks a file against their types when it reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Mapping, Optional, Tuple

from porting.bench.choices import Choices
from porting.bench.report import BenchReport

__all__ = ["Machine", "Record", "ResultContent", "Schema", "Status"]


Schema = Enum("Schema", {"BENCH": "porting-bench"})
"""The name of the format, by which a file says that it holds results."""

Status = Enum(
    "Status",
    {
        "DONE": "done",
        "FAILED": "failed",
        "OUT_OF_MEMORY": "out_of_memory",
        "TIMEOUT": "timeout",
        "INTERRUPTED": "interrupted",
        "NOT_RUN": "not_run",
    },
)
"""The outcome of a case."""


@dataclass(frozen=True)
class Machine:
    """The machine of a run; fields are None where it does not tell."""

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
    """One case of a run; `result` is None unless it was measured."""

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
    """The whole content of a result file."""

    schema: Schema
    version: int
    created: str
    finished: Optional[str]
    complete: bool
    machine: Machine
    cells: Tuple[Record, ...]
    summary: Optional[Mapping[str, Any]] = None
