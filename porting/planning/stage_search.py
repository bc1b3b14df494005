"""This module searches where stages begin and on which IPU each lies, by dynamic programming from the end of a step.

Splits use it. A weight lies on one IPU, so a stage that uses one of a later stage is on that stage's IPU, and the
pipeline comes back to it. From the end, the number of the stages that follow is known, which says how many
micro-batches wait; and an IPU is done with where its first stage is found, so that IPUs are numbered by the way.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .memory_model import balance_bytes, count_copies

__all__ = ["Found", "Search", "Segment"]

# the partial cuts that are followed from one place: a chain has no more of them than IPUs
_MOST_CUTS = 64


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
    def num_bytes(self) -> float:
        return balance_bytes(self.fixed_bytes + sum(self.shared_bytes))


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
    """A search for stages of `places`, of which the last is the end of the step.

    `segment` gives what lies between two places, and `earlier` the tied weights that are used before a place.
    `program_bytes` are there once on an IPU with several stages. `pace` says how much longer a step takes in so many
    stages.
    """

    places: Sequence[int]
    segment: Callable[[int, int], Segment]
    earlier: Mapping[int, int]
    program_bytes: int
    pace: Callable[[int], float]

    def find(self, num_ipus: int, limit: float, *, least_bytes: bool = False) -> Optional[Found]:
        """Return the quickest stages whose IPUs hold no more than `limit`, or those whose fullest holds the least."""
        end = self.places[-1]
        cuts: Dict[int, List[_Cut]] = {end: [_Cut(0.0, 0, 0, (), end, -1, None)]}
        rate = _rate_bytes if least_bytes else _rate_work
        for number in range(len(self.places) - 2, -1, -1):
            begin = self.places[number]
            found: List[_Cut] = []
            for finish in self.places[number + 1 :]:
                segment = self.segment(begin, finish)
                if balance_bytes(segment.fixed_bytes) > limit:
                    break
                for after in cuts[finish]:
                    found += self._extend(after, begin, segment, num_ipus, limit, rate)
            cuts[begin] = self._keep_best(found, begin, num_ipus, rate)
        whole = [cut for cut in cuts[self.places[0]] if cut.num_done == num_ipus]
        best = min(whole, key=lambda cut: cut.cost * (1 if least_bytes else self.pace(cut.num_stages)), default=None)
        return None if best is None else _number_ipus(best)

    def _extend(
        self, after: _Cut, begin: int, segment: Segment, num_ipus: int, limit: float, rate: Callable[[_Ipu], float]
    ) -> Iterator[_Cut]:
        """Put a stage before others: on the IPU that has its weights, on one that waits for weights, or on another."""
        earlier = self.earlier[begin]
        kept = count_copies(0, after.num_stages + 1) * segment.kept_bytes
        for ipu in self._iter_ipus(after, segment, earlier, num_ipus):
            fixed = ipu.fixed_bytes + segment.fixed_bytes + kept - self.program_bytes * bool(ipu.fixed_bytes)
            shared = tuple(map(max, ipu.shared_bytes, segment.shared_bytes))
            pins = tuple(sorted({*ipu.pins, *segment.pins}))
            weights = (ipu.weights | segment.weights) & earlier
            joined = _Ipu(ipu.name, weights, ipu.work + segment.work, fixed, shared, pins)
            number = num_ipus - 1 - after.num_done
            # IPUs are numbered by their first stages
            if joined.num_bytes > limit or len(pins) > 1 or (not weights and pins not in ((), (number,))):
                continue
            others = tuple(other for other in after.waiting if other.name != ipu.name)
            if weights:
                waiting = tuple(sorted((*others, joined)))
                yield _Cut(after.cost, after.num_stages + 1, after.num_done, waiting, begin, ipu.name, after)
            else:
                cost = max(after.cost, rate(joined))
                yield _Cut(cost, after.num_stages + 1, after.num_done + 1, others, begin, ipu.name, after)

    def _iter_ipus(self, after: _Cut, segment: Segment, earlier: int, num_ipus: int) -> Iterator[_Ipu]:
        owners = [ipu for ipu in after.waiting if ipu.weights & segment.weights]
        if len(owners) > 1:
            return
        if not owners:
            if after.num_done + len(after.waiting) < num_ipus:
                yield _Ipu(after.num_stages, 0, 0.0, 0, (0,) * len(segment.shared_bytes), ())
            if segment.weights & earlier:
                owners = list(after.waiting)
        # two stages of one IPU that follow each other are one
        yield from (ipu for ipu in owners if ipu.name != after.ipu)

    def _keep_best(self, found: List[_Cut], begin: int, num_ipus: int, rate: Callable[[_Ipu], float]) -> List[_Cut]:
        """Return those that may become the best, the ones with the least bounds of their cost first."""
        is_first = begin == self.places[0]
        before = 0.0 if is_first or rate is not _rate_work else self.segment(self.places[0], begin).work

        def bound(cut: _Cut) -> float:
            rates = [rate(ipu) for ipu in cut.waiting]
            left = num_ipus - cut.num_done
            if bool(left) is is_first:  # no IPU is left for what comes before, or for nothing one is
                return math.inf
            return max(cut.cost, (before + sum(rates)) / max(1, left), *rates) * self.pace(cut.num_stages)

        best: List[_Cut] = []
        spent: Dict[object, List[Tuple[float, ...]]] = {}
        for limit, cut in sorted(((bound(cut), cut) for cut in found), key=lambda pair: pair[0]):
            if limit == math.inf or len(best) == _MOST_CUTS:
                break
            others, own = spent.setdefault(cut.state, []), cut.amounts
            if not any(all(map(operator.le, other, own)) for other in others):
                others.append(own)
                best.append(cut)
        return best


def _rate_work(ipu: _Ipu) -> float:
    return ipu.work


def _rate_bytes(ipu: _Ipu) -> float:
    return ipu.num_bytes


def _number_ipus(cut: _Cut) -> Found:
    begins: List[int] = []
    ipus: List[int] = []
    numbers: Dict[int, int] = {}
    step: Optional[_Cut] = cut
    while step is not None and step.after is not None:
        begins.append(step.begin)
        ipus.append(numbers.setdefault(step.ipu, len(numbers)))
        step = step.after
    return Found(tuple(begins), tuple(ipus))
