"""The start of a search for the place of a fault: the evidence of a step, and what it was that differed first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Tuple

from porting.verify.certificate import Location, Measured
from porting.verify.fault_location.causes import name_module
from porting.verify.fault_location.evidence import Evidence

__all__ = ["FaultSearch", "name_phase"]

# words in the name of a kind, and the phase that it belongs to
_PHASES = (
    ("rate", "schedule"),
    ("schedule", "schedule"),
    ("eval", "evaluation"),
    ("sample", "data"),
    ("data", "data"),
    ("output", "forward"),
    ("loss", "loss"),
    ("gradient", "backward"),
    ("buffer", "buffer"),
)


def name_phase(kind: str) -> str:
    """Return the phase of a step that a kind of quantity belongs to.

    >>> name_phase("gradient"), name_phase("optimizer state")
    ('backward', 'update')
    """
    return next((phase for word, phase in _PHASES if word in kind), "update")


@dataclass(frozen=True)
class FaultSearch:
    """The evidence of a step, and the quantity that differed first."""

    evidence: Evidence
    first: Measured

    def make(self, phase: str, path: str, **found: Any) -> Location:
        """Return a location in the module at `path`."""
        module = name_module(path, self.evidence) if path else ""
        return Location(phase, self.first.step, module, **found)

    @property
    def losses(self) -> Tuple[List[float], List[float]]:
        """The losses of the step's micro-batches: plain, and those of the port's call or of its replay."""
        evidence = self.evidence
        replayed = [] if evidence.replayed is None else [float(loss.sum()) for loss in evidence.replayed.losses]
        return [float(loss.sum()) for loss in evidence.step.losses], list(evidence.observed.losses) or replayed
