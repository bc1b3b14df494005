"""The certificate of a port: what was compared, how far apart it was, how far rounding alone goes, and the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Mapping, Optional, Tuple

from porting.diagnostics import Place

__all__ = ["SCHEMA", "Certificate", "Curves", "KindVerdict", "Location", "Measured", "PrecisionVerdict", "Verdict"]

SCHEMA = 1
"""The version of a certificate's form; one of another version is refused."""


class Verdict(str, Enum):
    """What a certificate, or a part of it, says."""

    PASS = "PASS"
    """Everything that was compared lies inside the noise band."""
    FAIL = "FAIL"
    """Something lies outside of it."""
    CHAOTIC = "CHAOTIC"
    """From some step on rounding alone leads anywhere, so that nothing is shown; what came before is equal."""
    INCOMPLETE = "INCOMPLETE"
    """The run was cut off; what was compared until then is equal."""
    NOT_COMPARED = "NOT COMPARED"
    """This kind does not exist here, or could not be looked at; the note says why."""


@dataclass(frozen=True)
class Measured:
    """One quantity of one step: how far the port is from plain PyTorch, and how far rounding alone goes.

    `distance`, `scale` and `band` have the unit of the quantity: for tensors they are lengths as vectors. `note` says
    what cannot be subtracted, such as a gradient that only one side has; the distance is infinite then.
    """

    kind: str
    name: str
    step: int
    distance: float
    scale: float
    band: float
    note: str = ""

    @property
    def factor(self) -> float:
        """How many times the noise band the distance is; at most 1 is inside."""
        if not self.distance:
            return 0.0
        return self.distance / self.band if self.band else math.inf

    @property
    def is_inside(self) -> bool:
        """Whether the distance is no more than rounding explains."""
        return self.factor <= 1.0


@dataclass(frozen=True)
class KindVerdict:
    """All quantities of one kind: how many, the worst one, the first one outside the band, and what to know of them."""

    kind: str
    verdict: Verdict
    num_compared: int = 0
    worst: Optional[Measured] = None
    first: Optional[Measured] = None
    note: str = ""


@dataclass(frozen=True)
class Curves:
    """Values by optimizer step, for plots: index 0 is step 1. Losses are means over a step's samples.

    `lowest` and `highest` bound the losses of the runs that differ by rounding alone.
    """

    plain: Tuple[float, ...] = ()
    ported: Tuple[float, ...] = ()
    reference: Tuple[float, ...] = ()
    lowest: Tuple[float, ...] = ()
    highest: Tuple[float, ...] = ()
    plain_rates: Tuple[float, ...] = ()
    ported_rates: Tuple[float, ...] = ()


@dataclass(frozen=True)
class Location:
    """Where a difference begins: the pass, module, operator and line, the likely cause in words, and a reproduction.

    `phase` is "forward", "loss", "backward", "update", "buffer", "schedule", "evaluation" or "data"; `reproduction` is
    the text of a program that shows the difference alone, empty where there is none.
    """

    phase: str
    step: int
    module: str = ""
    operator: str = ""
    place: Optional[Place] = None
    cause: str = ""
    reproduction: str = ""


@dataclass(frozen=True)
class PrecisionVerdict:
    """What half precision does to the training: whether it explains the distance from float32, and what would help.

    `layers` maps a module to the largest and smallest magnitudes of its values and gradients and to how many of them
    overflow or underflow; `loss_scale` is the one that would fit.
    """

    precision: str
    explains: bool
    text: str
    loss_scale: Optional[float] = None
    layers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Certificate:
    """Whether a port trains as plain PyTorch does, and all that a reader needs to believe it or to repeat it.

    `kinds` stand in the order in which a fault spreads. `gradient_errors` are, by parameter, the distance of the first
    step's gradient, its scale and its noise band. `comparison` says what the plain side did: one large batch, or
    micro-batches and why. `surroundings` are versions, device and its proof, threads, seeds; `hashes` those of the
    model's source, the weights, the data and the options; `settings` what `verify` was asked for. `record` holds the
    port's sketches, so that a run elsewhere can be compared with this one.
    """

    verdict: Verdict
    reason: str
    kinds: Tuple[KindVerdict, ...]
    num_steps: int
    num_steps_asked: int
    curves: Curves = field(default_factory=Curves)
    gradient_errors: Mapping[str, Tuple[float, float, float]] = field(default_factory=dict)
    comparison: str = ""
    notes: Tuple[str, ...] = ()
    location: Optional[Location] = None
    precision: Optional[PrecisionVerdict] = None
    program: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    surroundings: Mapping[str, Any] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    record: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def holds(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def first(self) -> Optional[Measured]:
        """The difference where it begins: the earliest step, and there the kind that comes first."""
        found = [kind.first for kind in self.kinds if kind.first is not None]
        return min(found, key=lambda measured: measured.step) if found else None

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values, as they stand in a JSON file."""
        raise NotImplementedError
