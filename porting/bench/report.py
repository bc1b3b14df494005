"""A `BenchReport` holds what was measured of one workload, and a `ResultContent` is a whole result file of such.

`measure` makes the former, and `results` checks files against the types of both.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Dict, Mapping, Optional, Tuple

from porting.bench.against import Against
from porting.bench.children import Memory, StartUp
from porting.bench.choices import NOT_ASKED_FOR, BenchSettings, Choices
from porting.bench.curve import Curve, make_curve_table
from porting.bench.data_path import DataPath
from porting.bench.layout_copies import LayoutCopies
from porting.bench.limits import Limits
from porting.bench.machinery import Machinery
from porting.bench.pages import lay_out_result
from porting.bench.parity import Parity
from porting.bench.ported import CompileCost, DeviceProof
from porting.bench.tables import lay_out_tables
from porting.bench.turns import Ratios, Spread
from porting.support.late_pages import show_as_page

__all__ = ["BenchReport", "Machine", "Record", "ResultContent", "Schema", "Side", "Status", "find_break_even_steps"]


@dataclass(frozen=True)
class Side:
    """One side: what it is, its first step, and the steady state; times are those of one step.

    `round_seconds` are the medians of the rounds, which comparisons with other runs need.
    """

    described: str
    first_step_seconds: float
    step_seconds: Spread
    cpu_seconds: float
    samples_per_second: float
    round_seconds: Tuple[float, ...]
    data: Optional[DataPath] = None


@dataclass(frozen=True)
class BenchReport:
    """What `bench` measured; `speed_up` is eager time over ported time, so that above 1 the port is faster.

    As a string it is a page of text; `to_dict` has the same as plain values, which are `result` in result files.
    """

    name: str
    precision: str
    engine: str
    samples_per_step: int
    steps_per_call: int
    num_parameters: int
    calls_per_turn: int
    num_threads: int
    eager: Side
    ported: Side
    speed_up: Ratios
    compilation: CompileCost
    break_even_steps: Optional[int]
    parity: Parity
    device: DeviceProof
    memory: Memory = Memory(reason=NOT_ASKED_FOR)
    start_up: StartUp = StartUp(reason=NOT_ASKED_FOR)
    against: Against = Against()
    curve: Curve = Curve(reason=NOT_ASKED_FOR)
    limits: Limits = Limits(reason=NOT_ASKED_FOR)
    layout_copies: LayoutCopies = LayoutCopies(reason=NOT_ASKED_FOR)
    machinery: Machinery = Machinery(reason=NOT_ASKED_FOR)
    candidates: Tuple[Mapping[str, Any], ...] = ()
    findings: Tuple[str, ...] = ()
    trains: bool = True
    settings: BenchSettings = BenchSettings()

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        plain: Dict[str, Any] = asdict(self)
        for side, measured in (("eager", self.eager), ("ported", self.ported)):
            if measured.data is not None:
                plain[side]["data"].update(bound=measured.data.bound, waiting_share=measured.data.waiting_share)
        plain["device"]["is_proven"] = self.device.is_proven
        plain["memory"]["ratio"] = self.memory.ratio
        return plain

    def __str__(self) -> str:
        plain = self.to_dict()
        curve = ["", *lay_out_tables([make_curve_table(plain["curve"])])] if self.curve.steps else []
        return "\n".join([*lay_out_result(plain), *curve])

    _repr_html_ = show_as_page("porting.bench.html_page:write_result_page")


def find_break_even_steps(compile_seconds: float, *, eager_seconds: float, ported_seconds: float) -> Optional[int]:
    """Return the number of steps after which the time of compiling is made up for; None if it never is.

    >>> find_break_even_steps(10.0, eager_seconds=0.3, ported_seconds=0.1)
    50
    >>> find_break_even_steps(10.0, eager_seconds=0.1, ported_seconds=0.1) is None
    True
    """
    saving = eager_seconds - ported_seconds
    # less the last digits, which the subtraction has made up
    return math.ceil(round(compile_seconds / saving, 6)) if saving > 0 else None


# -- files -------------------------------------------------------------------------------------------------------------

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
    """One case of a run; `result` is None unless it was measured, `machine` unless a cluster ran it."""

    name: str
    target: str
    choices: Choices
    repeat: int
    status: Status
    reason: str
    seconds: float
    demanded: Optional[float]
    result: Optional[BenchReport]
    machine: Optional[Machine] = None


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
