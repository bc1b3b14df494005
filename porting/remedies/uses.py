"""Collect the uses of remedies and substitutes in a trace, and word the findings that tell of them.

`Remedies` notes the uses, and runners say the findings after a compilation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Tuple

from porting.diagnostics import CaptureError, Finding, Place, caller_place
from porting.remedies.entries import OperatorSubstitute, Remedy

__all__ = ["HostUse", "Uses", "make_mismatch", "refuse_on_host"]

_MOST_PLACES = 3


@dataclass(frozen=True)
class HostUse:
    """One operator that runs on the host, in each micro-batch: the bytes that go to it and come back."""

    name: str
    place: Optional[Place]
    bytes_to_host: int
    bytes_to_device: int


class Uses:
    """Collects what was used in a trace; each kind is told once, with its places."""

    def __init__(self) -> None:
        self._remedies: Dict[str, Tuple[Remedy, str]] = {}
        self._operators: Dict[str, List[Optional[Place]]] = {}
        self._on_host: List[HostUse] = []
        self._mismatches: List[Finding] = []

    def note_remedy(self, remedy: Remedy, version: str) -> None:
        """Keep that a remedy took part."""
        self._remedies[remedy.name] = (remedy, version)

    def note_operator(self, entry: OperatorSubstitute) -> None:
        """Keep that an operator was computed by others."""
        places = self._operators.setdefault(entry.name, [])
        place = caller_place()
        if place not in places:
            places.append(place)

    def note_host(self, use: HostUse) -> None:
        """Keep that an operator runs on the host."""
        self._on_host.append(use)

    def note_mismatch(self, finding: Finding) -> None:
        """Keep that a remedy was refused."""
        self._mismatches.append(finding)

    def take_findings(self) -> Iterator[Finding]:
        """Give a finding for each kind of use, and forget them."""
        found = [
            *self._mismatches,
            *(_tell_remedy(remedy, version) for remedy, version in self._remedies.values()),
            *(_tell_operator(name, places) for name, places in self._operators.items()),
            *(_tell_host(use) for use in self._on_host),
        ]
        self.__init__()  # type: ignore[misc]
        return iter(found)


def _tell_remedy(remedy: Remedy, version: str) -> Finding:
    return Finding(
        "C022",
        message=f"the remedy `{remedy.name}` changed code of {remedy.library} {version} while the step was compiled",
        notes=(remedy.reason, "the library is as before; values and gradients are those of its own code"),
        help=f"to do without: `PortOptions(without_remedies=['{remedy.name}'])`",
    )


def _tell_operator(name: str, places: List[Optional[Place]]) -> Finding:
    known = [place for place in places if place is not None]
    more = f" and {len(known) - _MOST_PLACES} more" if len(known) > _MOST_PLACES else ""
    others = ", ".join(str(place) for place in known[1:_MOST_PLACES])
    return Finding(
        "C025",
        message=f"`{name}`, which the device lacks in this form, is computed by other operators",
        place=known[0] if known else None,
        notes=(f"also at {others}{more}",) if others else (),
    )


def _tell_host(use: HostUse) -> Finding:
    return Finding(
        "C024",
        message=f"`{use.name}` runs on the host: {use.bytes_to_host:,} bytes go there and {use.bytes_to_device:,} "
        "come back in each micro-batch",
        place=use.place,
        label="the device waits for the host here",
        help=(
            f"compute it by operators of the device: `@porting.op({use.name})`",
            "to make this an error: `PortOptions(strict=True)`",
        ),
    )


def refuse_on_host(use: HostUse, reason: str) -> CaptureError:
    """Make the error for an operator that may not run on the host, for `reason`."""
    return CaptureError.of(
        "C024",
        message=f"`{use.name}` would run on the host: {reason}",
        place=use.place,
        label="the device has no such operator",
        notes=f"{use.bytes_to_host:,} bytes would go there and {use.bytes_to_device:,} come back in each micro-batch",
        help=(
            f"compute it by operators of the device: `@porting.op({use.name})` on a function that does",
            "or compute it before the model is called, and pass the result as an argument",
        ),
    )


def make_mismatch(remedy: Remedy, version: str, reason: str) -> Finding:
    """Make the finding for a remedy that does not fit the installed library."""
    return Finding(
        "C023",
        message=f"the remedy `{remedy.name}` is not for {remedy.library} {version}, and is left out",
        notes=(reason, f"what it is for: {remedy.reason}"),
        help=(
            f"install {remedy.library} from {remedy.first} up to, and without, {remedy.below}",
            "a step that compiles all the same is not affected",
        ),
    )
