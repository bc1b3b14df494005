"""Say what a proof of a port compared, how far apart it was, and how far rounding alone goes.

The verdict follows from these figures; `verify` returns it, and pages and files show it.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from porting.diagnostics import Place, PortingError, align_columns, say_number
from porting.support.late_pages import show_as_page
from porting.support.plain_data import make_plain
from porting.verify.certificate_file import find_contradiction, read_file, read_plain, write_file

__all__ = [
    "SCHEMA",
    "Certificate",
    "Curves",
    "KindVerdict",
    "Location",
    "Measured",
    "PrecisionVerdict",
    "Sensitivity",
    "Verdict",
    "align_kinds",
    "describe_extent",
    "describe_location",
    "describe_measured",
    "find_earliest",
    "iter_rows",
]

SCHEMA = 3
"""The version of a certificate's form; one of another version is refused."""


class Verdict(str, Enum):
    """What a certificate, or a part of it, says."""

    PASS = "PASS"
    """Everything that was looked at lies inside the noise band; the table says what that is."""
    FAIL = "FAIL"
    """Something lies outside of it."""
    CHAOTIC = "CHAOTIC"
    """From some step on rounding alone leads anywhere, so that nothing is shown; what came before is equal."""
    INCOMPLETE = "INCOMPLETE"
    """Not all that was asked for was looked at: the reason says what is missing. Nothing that was lies outside."""
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
        """How many times the noise band the distance is; at most 1 is inside, and what is no number is not."""
        if not self.distance:
            return 0.0
        if math.isnan(self.distance) or math.isnan(self.band):
            return math.inf
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


def find_earliest(kinds: Iterable[KindVerdict]) -> Optional[Measured]:
    """Return what lies outside where it begins: in the earliest step, and there the kind that comes first."""
    found = (kind.first for kind in kinds if kind.first is not None)
    return min(found, key=lambda measured: measured.step, default=None)


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
class Sensitivity:
    """How small a fault the proof would have caught, as a part of all gradients, or of all updates (`kind`).

    `caught` is the smallest that was planted and found, `missed` the largest that was not, or hardly.

    >>> print(Sensitivity("gradient", 0.03, 0.01))
    gradients that are 3 % too large would have been caught; 1 % too large they might not
    """

    kind: str
    caught: Optional[float]
    missed: Optional[float] = None

    def __str__(self) -> str:
        if self.caught is None:
            return f"no fault that was planted in the {self.kind}s would have been caught"
        missed = "" if self.missed is None else f"; {100 * self.missed:g} % too large they might not"
        return f"{self.kind}s that are {100 * self.caught:g} % too large would have been caught{missed}"


@dataclass(frozen=True)
class Certificate:
    """Whether a port trains as plain PyTorch does, and all that a reader needs to believe it or to repeat it.

    `kinds` stand in the order in which a fault spreads. `gradient_errors` are, by parameter, the distance of the first
    step's gradient, its scale and its noise band. `comparison` says what the plain side did: one large batch, or
    micro-batches and why. `surroundings` are versions, device and its proof, threads, seeds; `hashes` those of the
    model's source, the weights, the data and the options; `settings` what `verify` was asked for. `record` holds the
    port's sketches, so that a run elsewhere can be compared with this one. `sensitivity` is told first: how small a
    fault would have been caught, None where neither gradients nor updates were compared.
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
    sensitivity: Optional[Sensitivity] = None
    schema: int = SCHEMA

    @property
    def holds(self) -> bool:
        """Whether the verdict is PASS."""
        return self.verdict is Verdict.PASS

    @property
    def first(self) -> Optional[Measured]:
        """The difference where it begins: the earliest step, and there the kind that comes first."""
        return find_earliest(self.kinds)

    def check(self) -> Certificate:
        """Return this certificate if its verdict is PASS; raise PortingError V003 with where it begins otherwise."""
        if self.holds:
            return self
        raise PortingError.at_caller(
            "V003",
            message=f"the verdict is {self.verdict.value}: {self.reason}",
            notes=tuple(_iter_facts(self)),
            help=_HELP[self.verdict],
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values, as they stand in a JSON file; numbers that JSON lacks are marked."""
        plain: Dict[str, Any] = make_plain(self)
        return {"sensitivity": plain.pop("sensitivity"), **plain}

    @classmethod
    def from_dict(cls, plain: object) -> Certificate:
        """Make a certificate of what `to_dict` has returned; raises PortingError V004 where a type is wrong."""
        certificate: Certificate = read_plain(cls, plain)
        try:
            contradiction = find_contradiction(certificate)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            contradiction = f"its record is damaged ({type(error).__name__}: {error})"
        if contradiction:
            raise PortingError.of(
                "V004", message=f"the certificate contradicts itself: {contradiction}", help=_MAKE_AGAIN
            )
        return certificate

    def write(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write a JSON file, as a whole or not at all; raises PortingError E029 where that is not possible."""
        write_file(path, self.to_dict(), version=SCHEMA)

    @classmethod
    def read(cls, path: Union[str, os.PathLike[str]]) -> Certificate:
        """Read a file that `write` has written; raises PortingError V004 for one that is damaged, foreign or newer."""
        return cls.from_dict(read_file(path, version=SCHEMA))

    def __str__(self) -> str:
        """Lay the certificate out for a terminal: the verdict, a row for each kind, the place of a fault, notes."""
        return "\n".join(_iter_lines(self))

    _repr_html_ = show_as_page("porting.verify.certificate_page:write_certificate_page")


_MAKE_AGAIN = "make it again with `porting verify PROGRAM:FUNCTION --out FILE`"
_HELP: Mapping[Verdict, str] = {
    Verdict.FAIL: "look at the whole certificate, `print(certificate)`, and put right what it names first",
    Verdict.CHAOTIC: "take a smaller learning rate, or fewer steps: `steps=` the last one that is compared",
    Verdict.INCOMPLETE: "let it run to its end, or give it what the reason says is missing",
    Verdict.NOT_COMPARED: "give it what the notes say is missing",
}
_WORDS = {Verdict.PASS: "ok", Verdict.FAIL: "FAILED", Verdict.NOT_COMPARED: "-"}
_MOST_FACTOR = 1e6


def describe_factor(measured: Optional[Measured]) -> str:
    """Say in words whether a quantity is inside its noise band.

    >>> describe_factor(Measured("loss", "loss", 3, 2.0, 1.0, 0.5))
    'outside x 4'
    """
    if measured is None:
        return ""
    if measured.is_inside:
        return "inside"
    if measured.note and math.isinf(measured.distance):
        return "outside"
    return f"outside x {measured.factor:.2g}" if measured.factor < _MOST_FACTOR else "outside x > 1,000,000"


def describe_measured(measured: Measured) -> str:
    """Say how far a quantity is from plain PyTorch, and how far rounding alone goes."""
    subject = f"{measured.kind} `{measured.name}` in step {measured.step}"
    if measured.note and math.isinf(measured.distance):
        return f"{subject}: {measured.note}"
    note = f"; {measured.note}" if measured.note else ""
    figures = f"{measured.distance:.1e} from plain PyTorch, of {measured.scale:.1e}; noise band {measured.band:.1e}"
    return f"{subject}: {figures} ({describe_factor(measured)}){note}"


def describe_location(location: Location) -> Iterator[Tuple[str, str]]:
    """Say where a difference begins: pairs of a word and a text, which is empty where it is not known."""
    yield "pass", f"{location.phase}, step {location.step}"
    yield "module", location.module
    yield "operator", location.operator
    yield "line", "" if location.place is None else str(location.place)
    yield "cause", location.cause


def _iter_lines(certificate: Certificate) -> Iterator[str]:
    if certificate.sensitivity is not None:
        yield str(certificate.sensitivity)
    yield f"{certificate.verdict.value}: {certificate.reason}"
    yield describe_extent(certificate)
    if certificate.kinds:
        yield ""
        yield from align_kinds(certificate.kinds)
    begins = "" if certificate.first is None else describe_measured(certificate.first)
    if begins or certificate.location is not None:
        yield ""
    if begins and begins not in certificate.reason:
        yield f"it begins with the {begins}"
    if certificate.location is not None:
        named = [(name, text) for name, text in describe_location(certificate.location) if text]
        yield from (f"  {line}" for line in align_columns(named))
    told = list(_iter_notes(certificate))
    if told:
        yield ""
        yield from told


def align_kinds(kinds: Sequence[KindVerdict]) -> List[str]:
    """Lay out the table of kinds in lines."""
    return align_columns(list(iter_rows(kinds)), right={2, 3, 4})


def iter_rows(kinds: Sequence[KindVerdict]) -> Iterator[Tuple[str, ...]]:
    """List the rows of the table of kinds, its header first."""
    yield "", "", "compared", "of band", "in step", "verdict", "worst"
    for kind in kinds:
        worst, verdict = kind.worst, kind.verdict
        figures = ("", "") if worst is None else (_say_share(worst.factor), str(worst.step))
        said = describe_factor(worst) if verdict in (Verdict.PASS, Verdict.FAIL) else verdict.value.lower()
        name = "" if worst is None else worst.name
        texts = [name, "" if worst is None else worst.note, kind.note]
        word = _WORDS.get(verdict, verdict.value)
        yield word, kind.kind, f"{kind.num_compared:,}", *figures, said, "; ".join(filter(None, texts))


def describe_extent(certificate: Certificate) -> str:
    """Say which program was compared over how many steps, and how long that took."""
    steps = say_number(certificate.num_steps, "optimizer step")
    asked = f" of {certificate.num_steps_asked}" if certificate.num_steps_asked != certificate.num_steps else ""
    program = f"{certificate.program}: " if certificate.program else ""
    compared = f"; against {certificate.comparison}" if certificate.comparison else ""
    return f"{program}{steps}{asked} in {certificate.seconds:.1f} s{compared}"


def _say_share(factor: float) -> str:
    return f"{factor:.2g}" if factor < _MOST_FACTOR else "> 1e+06"


def _iter_notes(certificate: Certificate) -> Iterator[str]:
    if certificate.precision is not None:
        yield f"{certificate.precision.precision}: {certificate.precision.text}"
    yield from (f"note: {note}" for note in certificate.notes)


def _iter_facts(certificate: Certificate) -> Iterator[str]:
    """List what an error tells besides the verdict."""
    if certificate.first is not None and describe_measured(certificate.first) not in certificate.reason:
        yield f"it begins with the {describe_measured(certificate.first)}"
    if certificate.location is not None:
        yield "; ".join(f"{name} {text}" for name, text in describe_location(certificate.location) if text)
    yield from certificate.notes
