"""Report on tuning: every candidate with its cost, its speed, and why it is out if it is.

A port's report shows the table, and the cache keeps it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Dict, Mapping, Optional, Tuple

from ...diagnostics import align_columns
from ...support.interleaved import Interval
from ..calls.executable import Choice

__all__ = ["Candidate", "TuningReport"]


@dataclass(frozen=True)
class Candidate:
    """One choice that was tried; seconds are medians of one device call, None where it was not measured.

    `speed_up` is plain replay's processor time over this one's, of the same rounds, with a 95 % interval;
    `clock_speed_up` the same by the clock. `worst` is the largest relative difference from replay, but for what was
    found to be rounding. `problem` says why it is out, and is empty for one that could have been chosen. `left_out`
    says why it was not compiled: it could not win. `expected` is the speed-up that was predicted, with bounds, where
    there was one.
    """

    choice: Choice
    compile_seconds: Optional[float] = None
    cpu_seconds: Optional[float] = None
    wall_seconds: Optional[float] = None
    speed_up: Optional[Interval] = None
    clock_speed_up: Optional[Interval] = None
    worst: Optional[float] = None
    problem: str = ""
    left_out: str = ""
    expected: Optional[Interval] = None

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        values = asdict(self)
        values["variant"] = values.pop("choice")  # as it is called in the entries of the cache
        return {**values, "label": self.choice.label}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Candidate:
        """Make the candidate that `to_dict` described."""
        found = {name: value for name, value in values.items() if name != "label"}
        found["choice"] = Choice(**found.pop("variant"))
        for name in ("speed_up", "clock_speed_up", "expected"):
            interval = found.get(name)  # an older report lacks the last
            found[name] = None if interval is None else Interval(**interval)
        return cls(**found)


@dataclass(frozen=True)
class TuningReport:
    """Which candidate was chosen among which, in how many seconds; as a string it is a table.

    `limit_seconds` is the limit of tuning where candidates are out only because of it.
    """

    chosen: Choice
    candidates: Tuple[Candidate, ...] = ()
    seconds: float = 0.0
    notes: Tuple[str, ...] = ()
    limit_seconds: Optional[float] = None

    @property
    def speed_up(self) -> Optional[float]:
        """Plain replay's processor time over that of the chosen one; None where that was not measured."""
        found = [candidate.speed_up for candidate in self.candidates if candidate.choice == self.chosen]
        return found[0].median if found and found[0] is not None else None

    @property
    def summary(self) -> str:
        """The choice in one line."""
        speed_up = self.speed_up
        text = self.chosen.label if speed_up is None else f"{self.chosen.label}: {speed_up:.2g}x replay"
        num_out = sum(bool(candidate.problem) for candidate in self.candidates)
        num_left_out = sum(bool(candidate.left_out) for candidate in self.candidates)
        left_out = f", {num_left_out} not compiled" if num_left_out else ""
        return f"{text} (chosen of {len(self.candidates)}, {num_out} of them out{left_out}, in {self.seconds:.0f} s)"

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        candidates = [candidate.to_dict() for candidate in self.candidates]
        return {**asdict(self), "candidates": candidates, "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TuningReport:
        """Make the report that `to_dict` described."""
        return cls(
            Choice(**values["chosen"]),
            tuple(map(Candidate.from_dict, values["candidates"])),
            values["seconds"],
            tuple(values["notes"]),
            values.get("limit_seconds"),  # an older report lacks it
        )

    def __str__(self) -> str:
        """Lay the candidates out as a table, the chosen one marked."""
        header = ("", "candidate", "compile s", "cpu ms", "wall ms", "x replay", "95 % interval", "off by", "")
        rows = [header, *(self._make_row(candidate) for candidate in self.candidates)]
        return "\n".join([*align_columns(rows), *self.notes])

    def _make_row(self, candidate: Candidate) -> Tuple[str, ...]:
        speed_up = candidate.speed_up
        return (
            "*" if candidate.choice == self.chosen else "",
            candidate.choice.label,
            _format_number(candidate.compile_seconds, ".1f"),
            _format_number(candidate.cpu_seconds, ".3f", factor=1000.0),
            _format_number(candidate.wall_seconds, ".3f", factor=1000.0),
            "-" if speed_up is None else f"{speed_up.median:.2f}",
            "-" if speed_up is None else f"{speed_up.low:.2f} - {speed_up.high:.2f}",
            _format_number(candidate.worst, ".0e"),
            _explain_absence(candidate),
        )


def _explain_absence(candidate: Candidate) -> str:
    if candidate.problem:
        return f"out: {candidate.problem}"
    return f"not compiled: {candidate.left_out}" if candidate.left_out else ""


def _format_number(value: Optional[float], style: str, *, factor: float = 1.0) -> str:
    return "-" if value is None else format(value * factor, style)
