"""What ran where: the proof that a ported model was on its device, in numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

from ..diagnostics import Finding

__all__ = ["ExecutorRecord", "RunReport"]


@dataclass
class ExecutorRecord:
    """The life of one executor: `cache` is "off" without a cache directory, otherwise "hit" or "miss"."""

    name: str
    num_compilations: int = 0
    compile_seconds: Optional[float] = None
    compiled_at: Optional[float] = None
    num_calls: int = 0
    num_samples: int = 0
    call_seconds: float = 0.0
    cache: str = "off"

    def to_dict(self) -> Dict[str, Any]:
        """Return the record as plain values; `compiled_at` in ISO 8601 with the local offset from UTC."""
        record = dict(self.__dict__)
        record["compiled_at"] = None if self.compiled_at is None else _clock(self.compiled_at)
        return record


@dataclass(frozen=True)
class RunReport:
    """Which device ran a ported model, how often, and when it was compiled.

    As a string it is a table; `to_dict` has the same as data.
    """

    device: str
    backend: str
    is_simulator: bool
    optimizer: str
    samples_per_step: str
    executors: Tuple[ExecutorRecord, ...]
    findings: Tuple[Finding, ...] = field(default=())

    @property
    def num_training_calls(self) -> int:
        """Calls that trained."""
        return sum(record.num_calls for record in self.executors if record.name == "training")

    def to_dict(self) -> Dict[str, Any]:
        """Return the report as plain values, fit for JSON."""
        return {
            "device": self.device,
            "backend": self.backend,
            "is_simulator": self.is_simulator,
            "optimizer": self.optimizer,
            "samples_per_step": self.samples_per_step,
            "executors": [record.to_dict() for record in self.executors],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __str__(self) -> str:
        """Lay the report out as a table, a row for each executor."""
        lines = [
            f"device      {self.device}" + ("  (no IPU took part)" if self.is_simulator else ""),
            f"backend     {self.backend}",
            f"optimizer   {self.optimizer}",
            f"step        {self.samples_per_step}",
            "",
        ]
        header = ("executor", "compiled at", "compile s", "cache", "calls", "samples", "samples/s")
        rows = [header, *(_row(record) for record in self.executors)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
        for row in rows:
            lines.append("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
        lines.extend(f"{finding.severity.value}[{finding.code}]: {finding.message}" for finding in self.findings)
        return "\n".join(lines)


def _row(record: ExecutorRecord) -> Tuple[str, ...]:
    rate = f"{record.num_samples / record.call_seconds:,.0f}" if record.call_seconds and record.num_calls else "-"
    cells: List[str] = [
        record.name,
        "not compiled" if record.compiled_at is None else _clock(record.compiled_at),
        "-" if record.compile_seconds is None else f"{record.compile_seconds:.2f}",
        record.cache,
        str(record.num_calls),
        f"{record.num_samples:,}",
        rate,
    ]
    return tuple(cells)


def _clock(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
