"""Compare two certificates of one training, made on two machines, or on the simulator and on hardware.

`porting verify --recheck` and `--compare` use it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

from porting.diagnostics import PortingError
from porting.support.plain_data import make_plain
from porting.verify.certificate import Certificate, KindVerdict, Verdict, align_kinds
from porting.verify.judgement import FixedBand, judge_runs
from porting.verify.records import Record
from porting.verify.surroundings import list_hash_differences, list_surrounding_differences

__all__ = ["Comparison", "compare_certificates"]

# hashes of what has to be the same, or the two trainings are not one
_SAME = ("weights", "data")


@dataclass(frozen=True)
class Comparison:
    """Whether two certificates agree, quantity by quantity, and what was different between their runs.

    `theirs` and `own` are their verdicts. The noise band of a quantity is that of both runs together.
    """

    theirs: Verdict
    own: Verdict
    kinds: Tuple[KindVerdict, ...]
    hashes: Tuple[str, ...]
    surroundings: Tuple[str, ...]
    obstacle: str = ""

    @property
    def holds(self) -> bool:
        """Whether the verdicts are the same, and everything that was compared is inside the bands."""
        is_compared = any(kind.num_compared for kind in self.kinds)
        return self.theirs is self.own and is_compared and not self.obstacle and not self._outside

    @property
    def _outside(self) -> List[KindVerdict]:
        return [kind for kind in self.kinds if kind.first is not None]

    def to_dict(self) -> Dict[str, Any]:
        """Return all of it as plain values, fit for JSON."""
        plain: Dict[str, Any] = make_plain(self)
        return {"holds": self.holds, **plain}

    def __str__(self) -> str:
        """Lay the comparison out for a terminal."""
        return "\n".join(self._iter_lines())

    def _iter_lines(self) -> Iterator[str]:
        word = "the two certificates agree" if self.holds else "THE TWO CERTIFICATES DO NOT AGREE"
        yield f"{word}: {self.theirs.value} there, {self.own.value} here"
        if self.obstacle:
            yield self.obstacle
        if self.kinds:
            yield ""
            yield from align_kinds(self.kinds)
        if self.hashes or self.surroundings:
            yield ""
        yield from self.hashes
        yield from self.surroundings


def compare_certificates(theirs: Certificate, own: Certificate) -> Comparison:
    """Compare the ports' runs of two certificates, and what surrounded them.

    Raises PortingError V004 for a record that is not one.
    """
    hashes = list_hash_differences(theirs.hashes, own.hashes)
    surroundings = list_surrounding_differences(theirs.surroundings, own.surroundings)
    obstacle = _find_obstacle(theirs, own)
    kinds = () if obstacle else tuple(_compare_records(theirs, own))
    return Comparison(theirs.verdict, own.verdict, kinds, tuple(hashes), tuple(surroundings), obstacle)


def _find_obstacle(theirs: Certificate, own: Certificate) -> str:
    """Say why two certificates are not of one training; nothing if they are."""
    steps = [one.settings.get("steps") for one in (theirs, own)]
    if steps[0] != steps[1]:
        return f"they were asked for {steps[0]} and {steps[1]} steps, so that their data are not the same"
    other = [name for name in _SAME if theirs.hashes.get(name) != own.hashes.get(name)]
    if other:
        return f"they had other {' and other '.join(other)}, so that their numbers say nothing of each other"
    lacking = [word for word, one in (("the first", theirs), ("the second", own)) if not one.record]
    return f"{' and '.join(lacking)} keeps no record of its run" if lacking else ""


def _compare_records(theirs: Certificate, own: Certificate) -> Iterator[KindVerdict]:
    ended = [step for step in (theirs.record.get("chaos"), own.record.get("chaos")) if isinstance(step, int)]
    there, here = (_read_bands(certificate) for certificate in (theirs, own))
    # each run may be so far from plain PyTorch, so that they may be both together from each other
    bands = {key: there[key] + here[key] for key in there if key in here}
    # of what has no band in both nothing can be said
    stored = FixedBand(lambda *quantity: bands.get(quantity, math.inf), min(ended, default=None))
    judgement = judge_runs(_read_part(theirs, Record.from_dict), _read_part(own, Record.from_dict), stored)
    judgement.measured = {
        kind: [one for one in found if math.isfinite(one.band)] for kind, found in judgement.measured.items()
    }
    shared = {kind.kind for kind in theirs.kinds if kind.num_compared}
    shared &= {kind.kind for kind in own.kinds if kind.num_compared}
    yield from (verdict for verdict in judgement.list_verdicts() if verdict.kind in shared and verdict.num_compared)


def _read_bands(certificate: Certificate) -> Dict[Tuple[str, int, str], float]:
    def read(record: Mapping[str, Any]) -> Dict[Tuple[str, int, str], float]:
        return {(str(kind), int(step), str(name)): float(band) for kind, step, name, band in record["bands"]}

    return _read_part(certificate, read)


def _read_part(certificate: Certificate, read: Callable[[Mapping[str, Any]], Any]) -> Any:
    try:
        return read(certificate.record)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OverflowError) as error:
        raise PortingError.of(
            "V004",
            message="the record of the certificate is damaged",
            notes=f"reading it raises {type(error).__name__}: {error}",
            help="make it again with `porting verify PROGRAM:FUNCTION --out FILE`",
        ) from error
