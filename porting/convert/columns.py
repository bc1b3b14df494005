"""Hold what the proof of a conversion says: its columns, each with an outcome, a reason and a command that repeats it.

Proofs of plain programs and of ports make them; the report and the writing read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from porting.check.preflight import assemble_report, look_at_sources
from porting.diagnostics import Finding, PortingError, Severity, align_columns
from porting.support.plain_data import make_plain

__all__ = ["Column", "ConvertedProgram", "Outcome", "Proof", "describe_finding", "list_findings", "make_column"]


class Outcome(str, Enum):
    """What a column says."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class ConvertedProgram:
    """A program before and after: `script`, by its path in two complete trees, and its command lines.

    The converted one takes `port_arguments` besides, to train on the simulator. `working` is the folder in the project
    that both are started from.
    """

    original: Path
    converted: Path
    script: str
    arguments: Tuple[str, ...] = ()
    port_arguments: Tuple[str, ...] = ("--device", "sim")
    working: Path = Path()
    has_host_path: bool = True
    """Whether the port's program trains without a device, too, so that this can be compared."""


@dataclass(frozen=True)
class Column:
    """One claim about a conversion: what came of it and why, the numbers that decided, and how to see it again."""

    name: str
    outcome: Outcome
    reason: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True)
class Proof:
    """The columns of a conversion, and what `porting check` has found in the converted program."""

    columns: Tuple[Column, ...]
    findings: Tuple[Finding, ...] = ()

    @property
    def is_proven(self) -> bool:
        """Whether all columns were run and passed."""
        return bool(self.columns) and self.num_passed == len(self.columns)

    @property
    def num_passed(self) -> int:
        """How many columns were run and passed."""
        return sum(column.outcome is Outcome.PASSED for column in self.columns)

    @property
    def first_lack(self) -> str:
        """The reason of the first column that did not pass; empty where all did."""
        return next((column.reason for column in self.columns if column.outcome is not Outcome.PASSED), "")

    def as_plain(self) -> Dict[str, Any]:
        """Return the columns as plain values for JSON."""
        return {"is_proven": self.is_proven, "columns": make_plain(self.columns)}

    def __str__(self) -> str:
        """Lay the columns out for a terminal, each with its command."""
        rows = [(column.name, column.outcome.value, column.reason) for column in self.columns]
        commands = [f"  {column.name}: {column.command}" for column in self.columns if column.command]
        return "\n".join([*align_columns(rows), *(["", "to see it again:", *commands] if commands else [])])


def make_column(
    name: str, faults: Sequence[str], lack: str, passed: str, numbers: Mapping[str, Any], command: str
) -> Column:
    """Make a column: any fault fails it, and what lacks keeps it from passing."""
    fault = next(filter(None, faults), "")
    outcome = Outcome.FAILED if fault else Outcome.NOT_RUN if lack else Outcome.PASSED
    return Column(name, outcome, fault or lack or passed, numbers, command)


def list_findings(script: str) -> Tuple[List[Finding], bool]:
    """List what `porting check` finds in a program, errors first, and tell whether it has read all of it."""
    try:
        report = assemble_report(script, look_at_sources([script]))
    except PortingError as error:
        return [error.finding], True
    found = sorted(report.standing, key=lambda one: one.severity is not Severity.ERROR)
    return found, bool(found) or report.is_clean


def describe_finding(finding: Finding) -> str:
    """Say what `porting check` finds, for a column."""
    return f"`porting check` finds {finding.code}: {finding.message}"
