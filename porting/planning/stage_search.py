"""This module searches where stages begin and on which IPU each lies, by dynamic programming from the end of a step.

Splits use it. A weight lies on one IPU, so a stage that uses one of a later stage is on that stage's IPU, and the
pipeline comes back to it. From the end, the number of the stages that follow is known, which says how many
micro-batches wait; and an IPU is done with where its first stage is found, so that IPUs are numbered by the way.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .memory_model import balance_bytes, count_copies

__all__ = ["Found", "Search", "Segment"]

# the partial cuts that are followed from one place: few at first, whose cost then bounds the others, and more the fewer
# places there are; a chain has no more of them than IPUs
_FEW, _MANY = 4, 1024


class Segment(NamedTuple):
    """Operators between two places as a stage: its share of the work, its bytes, its tied weights, and its IPU if any.

    `fixed_bytes` are there once, `kept_bytes` for each micro-batch that waits, and of `shared_bytes` an IPU has the
    most of its stages. `weights` are bits, one for each weight that several segments use.
    """

    work: float
    fixed_bytes: int
    kept_bytes: int
    shared_bytes: Tuple[int, ...]
    weights: int
    pins: Tuple[int, ...]


class Found(NamedTuple):
    """Stages: the place where each begins, and its IPU."""

    begins: Tuple[int, ...]
    ipus: Tuple[int, ...]


class _Ipu(NamedTuple):
    """An IPU with the stages that were found so far: by the number of stages after its last, which is its name.

    `weights` are those for which an earlier stage will come to it.
    """

    name: int
    weights: int
    work: float
    fixed_bytes: int
    shared_bytes: Tuple[int, ...]
    pins: Tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        # whole bytes, as a plan has them
        return int(balance_bytes(self.fixed_bytes + sum(self.shared_bytes)))


class _Cut(NamedTuple):
    """The stages from one place on: the cost of IPUs that are done with, and those that wait for earlier stages."""

    cost: float
    num_stages: int
    num_done: int
    waiting: Tuple[_Ipu, ...]
    begin: int
    ipu: int
    after: Optional[_Cut]

    @property
    def state(self) -> object:
        """What decides on which IPUs earlier stages can be."""
        names = [ipu.name for ipu in self.waiting]
        own = names.index(self.ipu) if self.ipu in names else -1
        return self.num_done, own, tuple((ipu.weights, ipu.pins) for ipu in self.waiting)

    @property
    def amounts(self) -> Tuple[float, ...]:
        """What it has spent: of two cuts in the same state, that with less of everything is at least as good."""
        spent: List[float] = [self.cost, self.num_stages]
        for ipu in self.waiting:
            spent += (ipu.work, ipu.fixed_bytes, *ipu.shared_bytes)
        return tuple(spent)


@dataclass(frozen=True)
class Search:
    """A search for stages of `places`, of which the last is the end of the step, on `num_ipus` IPUs of `limit` bytes.

    `segment` gives what lies between two places. `works` are the shares of the work before each place, `residents` the
    bytes that are there once and first used before it, and `tied` the tied weights that are used from it to the next.
    `program_bytes` are there once on an IPU with several stages. `pace` says how much longer a step takes in so many
    stages. With `least_bytes` the fullest IPU is to hold the least, and else the slowest to be the quickest.
    """

    places: Sequence[int]
    segment: Callable[[int, int], Segment]
    works: Sequence[float]
    residents: Sequence[int]
    tied: Sequence[int]
    program_bytes: int
    num_ipus: int
    limit: float
    pace: Callable[[int], float]
    least_bytes: bool = False
    _sums: Dict[Tuple[int, int], Tuple[float, int]] = field(default_factory=dict, repr=False)

    def find(self) -> Optional[Found]:
        """Return the best stages, or None where no IPU may be left empty or hold more."""
        best: Optional[_Cut] = None
        for width in (_FEW, max(self.num_ipus, _MANY // len(self.places))):
            most = math.inf if best is None else self._bound_cost(best, 0)
            best = self._find_cut(width, most) or best
        return None if best is None else _number_ipus(best, self.places)

    def _find_cut(self, width: int, most: float) -> Optional[_Cut]:
        """Return the best cut that costs less than `most`, following `width` of them from each place."""
        last = len(self.places) - 1
        cuts: Dict[int, List[_Cut]] = {last: [_Cut(0.0, 0, 0, (), last, -1, None)]}
        for number in reversed(range(last)):
            found: List[_Cut] = []
            for finish in range(number + 1, len(self.places)):
                least = 0.0 if self.least_bytes else self.works[finish] - self.works[number]
                resident = self.residents[finish] - self.residents[number]
                if least * self.pace(self.num_ipus) >= most or resident > self.limit:
                    break
                if cuts[finish]:
                    segment = self.segment(self.places[number], self.places[finish])
                    if int(balance_bytes(segment.fixed_bytes)) > self.limit:
                        break
                    for after in cuts[finish]:
                        found += self._put_before(after, number, segment)
            cuts[number] = self._keep_best(found, number, width, most)
        return next(iter(cuts[0]), None)

    def _put_before(self, after: _Cut, begin: int, segment: Segment) -> Iterator[_Cut]:
        """Put a stage before others: on the IPU that has its weights, on one that waits for weights, or on another."""
        earlier = self._earlier[begin]
        kept = count_copies(0, after.num_stages + 1) * segment.kept_bytes
        for ipu in self._iter_ipus(after, segment, earlier):
            fixed = ipu.fixed_bytes + segment.fixed_bytes + kept - self.program_bytes * bool(ipu.fixed_bytes)
            shared = tuple(map(max, ipu.shared_bytes, segment.shared_bytes))
            pins = tuple(sorted({*ipu.pins, *segment.pins}))
            weights = (ipu.weights | segment.weights) & earlier
            joined = _Ipu(ipu.name, weights, ipu.work + segment.work, fixed, shared, pins)
            number = self.num_ipus - 1 - after.num_done
            # IPUs are numbered by their first stages
            if joined.num_bytes > self.limit or len(pins) > 1 or (not weights and pins not in ((), (number,))):
                continue
            others = tuple(other for other in after.waiting if other.name != ipu.name)
            if weights:
                waiting = tuple(sorted((*others, joined)))
                yield _Cut(after.cost, after.num_stages + 1, after.num_done, waiting, begin, ipu.name, after)
            else:
                cost = max(after.cost, self._rate_ipu(joined))
                yield _Cut(cost, after.num_stages + 1, after.num_done + 1, others, begin, ipu.name, after)

    def _iter_ipus(self, after: _Cut, segment: Segment, earlier: int) -> Iterator[_Ipu]:
        owners = [ipu for ipu in after.waiting if ipu.weights & segment.weights]
        if len(owners) > 1:
            return
        if not owners:
            if after.num_done + len(after.waiting) < self.num_ipus:
                yield _Ipu(after.num_stages, 0, 0.0, 0, (0,) * len(segment.shared_bytes), ())
            if segment.weights & earlier:
                owners = list(after.waiting)
        # two stages of one IPU that follow each other are one
        yield from (ipu for ipu in owners if ipu.name != after.ipu)

    def _keep_best(self, found: List[_Cut], begin: int, width: int, most: float) -> List[_Cut]:
        """Return those that may become the best, the ones with the least bounds of their cost first."""
        bounds = ((self._bound_cost(cut, begin), cut) for cut in found)
        best: List[_Cut] = []
        spent: Dict[object, List[Tuple[float, ...]]] = {}
        for bound, cut in sorted(bounds, key=lambda pair: pair[0]):
            if bound >= most or len(best) == width:
                break
            others, own = spent.setdefault(cut.state, []), cut.amounts
            if not any(all(map(operator.le, other, own)) for other in others):
                others.append(own)
                best.append(cut)
        return best

    def _bound_cost(self, cut: _Cut, begin: int) -> float:
        """Return the least that a cut can come to cost, which is infinite where no IPU is left or one stays empty."""
        work_left, parts_left = self._sum_before(begin, 0)
        rates = [0.0]
        for ipu in cut.waiting:
            work, parts = self._sum_before(begin, ipu.weights)
            work_left, parts_left = work_left - work, parts_left - parts
            rates.append(self._rate_ipu(ipu) + (0.0 if self.least_bytes else work))
        num_new = self.num_ipus - cut.num_done - len(cut.waiting)
        held = sum(ipu.num_bytes for ipu in cut.waiting) + self.residents[begin]
        num_left = num_new + len(cut.waiting)
        if num_new > parts_left or (parts_left and not num_left) or held > num_left * self.limit:
            return math.inf
        even = held if self.least_bytes else sum(rates) + work_left
        return max(cut.cost, even / max(1, num_left), *rates) * self.pace(cut.num_stages)

    def _rate_ipu(self, ipu: _Ipu) -> float:
        return ipu.num_bytes if self.least_bytes else ipu.work

    def _sum_before(self, begin: int, weights: int) -> Tuple[float, int]:
        """Return the work of what lies before a place, and its parts; with `weights`, of those parts that use them."""
        key = begin, weights
        if key not in self._sums:
            own = [number for number in range(begin) if not weights or self.tied[number] & weights]
            self._sums[key] = sum(self.works[number + 1] - self.works[number] for number in own), len(own)
        return self._sums[key]

    @functools.cached_property
    def _earlier(self) -> List[int]:
        """The tied weights that are used before each place."""
        return [0, *itertools.accumulate(self.tied, operator.or_)]


def _number_ipus(cut: _Cut, places: Sequence[int]) -> Found:
    begins: List[int] = []
    ipus: List[int] = []
    numbers: Dict[int, int] = {}
    step: Optional[_Cut] = cut
    while step is not None and step.after is not None:
        begins.append(places[step.begin])
        ipus.append(numbers.setdefault(step.ipu, len(numbers)))
        step = step.after
    return Found(tuple(begins), tuple(ipus))
