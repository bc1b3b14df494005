"""`NotFinite`, what a search has found: the pass, the operator and its line, and the values that went into it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Optional, Tuple

from porting.diagnostics import Finding, Place, PortingError, render
from porting.observe.watcher import WatchedOperator

from .value_ranges import ValueRange

__all__ = ["NotFinite", "NotFiniteError"]


@dataclass(frozen=True)
class NotFinite:
    """The first value of a call that is not finite.

    `phase` is "forward", "backward", "update", or "before" for what the call began with: a batch, a weight.
    `operator` is that of `forward`, of the optimizer in an update, and None for "before". `inputs` are what went into
    it, gradients first in the backward pass, and `result` is what came out. `name` is the parameter or the tensor that
    it shows in. `step` and `micro_batch` are counted from 1 within the call. `ran_on` says what the search ran on.
    `place` is the user's line: the operator's, or that of the call.
    """

    phase: str
    message: str
    operator: Optional[WatchedOperator] = None
    name: str = ""
    inputs: Tuple[ValueRange, ...] = ()
    result: Optional[ValueRange] = None
    notes: Tuple[str, ...] = ()
    help: Tuple[str, ...] = ()
    step: int = 1
    micro_batch: int = 1
    ran_on: str = ""
    place: Optional[Place] = None

    def __post_init__(self) -> None:
        """Take the operator's line where no other is given."""
        if self.place is None and self.operator is not None:
            object.__setattr__(self, "place", self.operator.place)

    @property
    def module_path(self) -> str:
        """The path of the module whose operator it is, as in `blocks.3.norm`; empty outside of all modules."""
        return "" if self.operator is None else self.operator.module_path

    def replace(self, **changes: Any) -> NotFinite:
        """Return a copy with some fields changed."""
        return replace(self, **changes)

    def to_finding(self) -> Finding:
        """Return the error L009 that names the place, the operator, and the range of its inputs."""
        where = [] if self.operator is None else [f"the module is `{self.operator.module_name}`"]
        notes = [*where, *(f"input {value}" for value in self.inputs)]
        notes += [] if self.result is None else [f"result {self.result}"]
        if (self.step, self.micro_batch) != (1, 1):
            notes.append(f"that is step {self.step} of the call, micro-batch {self.micro_batch} of the step")
        notes += [*self.notes, *([self.ran_on] if self.ran_on else [])]
        return Finding("L009", self.message, place=self.place, notes=tuple(notes), help=self.help)

    def to_dict(self) -> Dict[str, Any]:
        """Return it as plain values, fit for JSON."""
        operator = self.operator
        return {
            "phase": self.phase,
            "message": self.message,
            "operator": None if operator is None else operator.name,
            "module_path": self.module_path,
            "place": None if self.place is None else asdict(self.place),
            "name": self.name,
            "inputs": [value.to_dict() for value in self.inputs],
            "result": None if self.result is None else self.result.to_dict(),
            "notes": list(self.notes),
            "help": list(self.help),
            "step": self.step,
            "micro_batch": self.micro_batch,
            "ran_on": self.ran_on,
        }

    def __str__(self) -> str:
        """Lay it out as the error that `debug_nan` raises."""
        return render(self.to_finding())


class NotFiniteError(PortingError):
    """Code L009: a value of a call stopped being finite; `fault` is what is known of it, None if nothing is."""

    def __init__(self, finding: Finding, fault: Optional[NotFinite] = None) -> None:
        super().__init__(finding)
        self.fault = fault
