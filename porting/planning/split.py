"""This module cuts a step into the stages of a pipeline: the slowest IPU is as quick as the memory of IPUs allows.

Plans use it. It measures what lies between the places where a stage can begin, and the search puts it together.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from .memory_model import Layout, balance_bytes, count_copies, measure_ipus, measure_resident, measure_stage
from .stage_search import Found, Search, Segment
from .step_memory import StepMemory
from .throughput import count_rounds

__all__ = ["Split", "Splitter", "collect_cuts", "split_step"]

_MOST_CUTS = 64
# how near to the least memory stages are that fit nowhere
_NEAR = 1.005
# rounds that more stages than an accumulation fills are taken for: more than any work is worth
_UNFILLED = 1e6


@dataclass(frozen=True)
class Split:
    """A step in stages: the IPU by the call that begins each, the operators where they begin, and what it costs.

    `work` is the share of the slowest IPU of all work, from 1 / number of IPUs to 1; `num_bytes` is what the fullest
    IPU holds.
    """

    stages: Mapping[str, int]
    begins: Tuple[int, ...]
    ipus: Tuple[int, ...]
    work: float
    num_bytes: int


def collect_cuts(step: StepMemory, most: int = _MOST_CUTS) -> Dict[int, str]:
    """Return the places where a stage can begin, each with the outermost call of a module that begins there.

    Of modules that are called once there are at most `most`: those around the uses of a tied weight, and of each part
    of the work the place over which the fewest bytes pass. With others there are at most twice as many: all calls of
    modules at one depth or none, since each of them must come back to its weights.
    """
    names: Dict[int, str] = {}
    for name, place in step.calls.items():
        if place and (place not in names or name.count(".") < names[place].count(".")):
            names[place] = name
    if len(names) <= most:
        return {place: names[place] for place in sorted(names)}
    once = [place for place in sorted(names) if "#" not in names[place]]
    kept = _thin_out(step, once, most)
    again = sorted((name.count("."), place) for place, name in names.items() if "#" in name)
    for _depth, level in itertools.groupby(again, key=lambda found: found[0]):
        places = [place for _depth, place in level]
        if len(kept) + len(places) > 2 * most:
            break
        kept.update(places)
    return {place: names[place] for place in sorted(kept)}


def _thin_out(step: StepMemory, places: Sequence[int], most: int) -> Set[int]:
    """Return no more than `most` of `places`."""
    if len(places) <= most:
        return set(places)
    kept = _collect_ends(step, places)
    if len(kept) > most // 2:  # a weight of everywhere
        kept = set()
    crossing, lengths = _measure_crossing(step), _measure_work(step)
    bins: Dict[int, int] = {}
    for place in reversed(places):
        number = int((most - len(kept)) * lengths[place])
        if number not in bins or crossing[place] <= crossing[bins[number]]:
            bins[number] = place
    return {*bins.values(), *kept}


def _collect_ends(step: StepMemory, places: Sequence[int]) -> Set[int]:
    """Return of `places` the last before each use of a tied weight, and the first after it."""
    ends: Set[int] = set()
    for used in _list_uses(step):
        around = {bisect.bisect_right(places, at) for at in used}
        if len(around) > 1:
            ends.update(places[number] for last in around for number in (last - 1, last) if 0 <= number < len(places))
    return ends


def split_step(
    step: StepMemory, layout: Layout, num_ipus: int, *, limit: int, pins: Optional[Mapping[str, int]] = None
) -> Optional[Split]:
    """Cut `step` into stages on `num_ipus` IPUs, of which none holds more than `limit` bytes if that can be.

    `layout` says how the step is laid out besides. `pins` places modules on IPUs. None where the step has too few
    places to cut, or where no cut respects pins and keeps each weight on one IPU.
    """
    return Splitter(step, layout, pins).split(num_ipus, limit)


def _measure_crossing(step: StepMemory) -> List[int]:
    """Return for each operator the bytes that are made before it and read by it or later."""
    changes = [0] * (len(step.operations) + 2)
    for value in step.values:
        last = max(value.read_at, default=-1)
        if last > value.made_at:
            changes[value.made_at + 1] += value.num_bytes
            changes[last + 1] -= value.num_bytes
    return list(itertools.accumulate(changes))


def _measure_work(step: StepMemory) -> List[float]:
    """Return the share of all work that is done before each operator, and 1 at the end.

    Work are floating-point operations, and the bytes that each operator reads and makes as one for each.
    """
    works = [operation.flops + operation.operand_bytes + operation.result_bytes for operation in step.operations]
    total = max(1, sum(works))
    return [0.0, *(work / total for work in itertools.accumulate(works))]


class Splitter:
    """Cuts a step into stages, on different numbers of IPUs: what each stage would hold is measured once."""

    def __init__(
        self, step: StepMemory, layout: Layout, pins: Optional[Mapping[str, int]] = None, *, accumulation: int = 1
    ) -> None:
        """Find the places where the step can be cut; `pins` places modules on IPUs.

        Stages take time to fill, so that more of them pay the less the fewer micro-batches an `accumulation` has.
        """
        self._step = step
        self._layout = replace(layout, recomputes=True, accumulates=True)
        self._accumulation = accumulation
        self._names = collect_cuts(step)
        begins = {**step.begins, **step.calls}
        self._pins = {begins.get(name, 0): ipu for name, ipu in (pins or {}).items()}
        self._names.update({begins[name]: name for name in pins or {} if begins.get(name, 0)})
        self._places = [0, *sorted(self._names), len(step.operations)]
        self._works = _measure_work(step)
        self._resident = measure_resident(step, self._layout)
        self._tied = _list_tied(step, self._places)
        self._segments: Dict[Tuple[int, int], Segment] = {}

    def split(self, num_ipus: int, limit: int) -> Optional[Split]:
        """Return the quickest stages on `num_ipus` IPUs that fit, or else quick ones that hold the least; or None."""
        search = self._make_search(num_ipus, limit)
        found = search.find()
        if found is None:
            smallest = replace(search, limit=math.inf, pace=_count_nothing, least_bytes=True).find()
            if smallest is None:
                return None
            found = replace(search, limit=_NEAR * self._make_split(smallest).num_bytes).find() or smallest
        return self._make_split(found)

    def fit(self, num_ipus: int, limit: int) -> Optional[Split]:
        """Return the quickest stages that fit on `num_ipus` IPUs, or None: what would fit nowhere is not searched."""
        if num_ipus > self.most_ipus or self._least_bytes > limit or not self.has_room(num_ipus, limit):
            return None
        search = self._make_search(num_ipus, limit)
        found = search.find() or replace(search, pace=_count_nothing, least_bytes=True).find()
        split = None if found is None else self._make_split(found)
        return split if split is not None and split.num_bytes <= limit else None

    def has_room(self, num_ipus: int, limit: int) -> bool:
        """Tell whether weights and what belongs to them have room on `num_ipus` IPUs at all."""
        return self._resident[-1] <= num_ipus * limit

    @property
    def most_ipus(self) -> int:
        """The IPUs on which the step can be at most, without one that is empty."""
        return len(self._groups)

    @functools.cached_property
    def _groups(self) -> List[List[int]]:
        """The numbers of places, each with those that use a weight which is used from there, too: they share an IPU."""
        groups: List[Tuple[int, List[int]]] = []
        for number, weights in enumerate(self._tied):
            joined = [group for group in groups if group[0] & weights]
            groups = [group for group in groups if not group[0] & weights]
            bits = functools.reduce(operator.or_, (bits for bits, _numbers in joined), weights)
            groups.append((bits, [*itertools.chain.from_iterable(numbers for _bits, numbers in joined), number]))
        return [numbers for _bits, numbers in groups]

    @functools.cached_property
    def _least_bytes(self) -> int:
        """What some IPU must hold, on however many the step is: that of one group, without what waits there."""
        least = 0
        for group in self._groups:
            parts = [self._find_segment(*self._places[number : number + 2]) for number in group]
            shared = sum(part.fixed_bytes - self._layout.program_bytes for part in parts) + self._layout.program_bytes
            least = max(least, shared + max(part.shared_bytes[0] for part in parts))
        return int(balance_bytes(least))

    def _make_search(self, num_ipus: int, limit: float) -> Search:
        return Search(
            places=self._places,
            segment=self._find_segment,
            works=[self._works[place] for place in self._places],
            residents=[self._resident[place] for place in self._places],
            tied=self._tied,
            program_bytes=self._layout.program_bytes,
            num_ipus=num_ipus,
            limit=limit,
            pace=lambda num_stages: self._measure_pace(num_ipus, num_stages),
        )

    def _measure_pace(self, num_ipus: int, num_stages: int) -> float:
        """Return the rounds of a pipeline for each micro-batch: of the accumulation, or of as many as fill the IPUs.

        More stages than the accumulation fills are the last resort. One of 1 is no choice: plans raise it.
        """
        micro_batches = max(self._accumulation, count_copies(0, num_ipus))
        rounds = count_rounds(self._step, micro_batches, num_stages) / micro_batches
        is_filled = self._accumulation == 1 or count_copies(0, num_stages) <= micro_batches
        return rounds + (0 if is_filled else _UNFILLED)

    def _find_segment(self, begin: int, finish: int) -> Segment:
        key = (begin, finish)
        if key not in self._segments:
            begins = tuple(sorted({0, begin, finish} - {len(self._step.operations)}))
            layout = replace(self._layout, begins=begins, ipus=tuple(range(len(begins))))
            number = begins.index(begin)
            memory = measure_stage(self._step, layout, number, begin, finish)
            shared = (memory.temporary_bytes, memory.recomputed_bytes)
            self._segments[key] = Segment(
                work=self._works[finish] - self._works[begin],
                fixed_bytes=memory.total_bytes - memory.kept_bytes - memory.imbalance_bytes - sum(shared),
                kept_bytes=memory.kept_bytes // count_copies(number, len(begins)),
                shared_bytes=shared,
                weights=functools.reduce(
                    operator.or_, self._tied[self._places.index(begin) : self._places.index(finish)]
                ),
                pins=tuple(sorted({ipu for place, ipu in self._pins.items() if begin <= place < finish})),
            )
        return self._segments[key]

    def _make_split(self, found: Found) -> Split:
        layout = replace(self._layout, begins=found.begins, ipus=found.ipus)
        works = [0.0] * layout.num_ipus
        for ipu, first, finish in layout.iter_stages(len(self._step.operations)):
            works[ipu] += self._works[finish] - self._works[first]
        return Split(
            stages={self._names[place]: ipu for place, ipu in zip(found.begins[1:], found.ipus[1:])},
            begins=found.begins,
            ipus=found.ipus,
            work=max(works),
            num_bytes=max(memory.total_bytes for memory in measure_ipus(self._step, layout)),
        )


def _count_nothing(_num_stages: int) -> float:
    """Say that stages take no time to fill."""
    return 1.0


def _list_tied(step: StepMemory, places: Sequence[int]) -> List[int]:
    """Return for each place the weights that are used from there to the next and elsewhere too, as bits.

    Weights that are used in the same places are one bit.
    """
    uses = {frozenset(bisect.bisect_right(places, at) - 1 for at in used) for used in _list_uses(step)}
    tied = [0] * (len(places) - 1)
    for number, used in enumerate(sorted(sorted(used) for used in uses if len(used) > 1)):
        for place in used:
            tied[place] |= 1 << number
    return tied


def _list_uses(step: StepMemory) -> List[List[int]]:
    """Return for each parameter the operators that use it."""
    uses: Dict[str, List[int]] = {}
    for position, operation in enumerate(step.operations):
        for name in operation.parameters:
            uses.setdefault(name, []).append(position)
    return list(uses.values())
