"""This module cuts a step into the stages of a pipeline: the slowest stage is as quick as the memory of IPUs allows.

Plans use it. It is a dynamic program over the places where a stage can begin, and its memory depends on the stage's
number, because earlier stages keep more micro-batches.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, replace
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .memory_model import (
    Layout,
    StageMemory,
    balance_bytes,
    balance_stage,
    count_copies,
    join_stages,
    measure_ipus,
    measure_resident,
    measure_stage,
)
from .step_memory import StepMemory

__all__ = ["Split", "Splitter", "collect_cuts", "split_step"]

_MOST_CUTS = 64
# a stage at the end that comes back to IPU 0 is short
_MOST_TAILS = 6
# how near to the least memory stages are that fit nowhere, and where the search for them ends
_NEAR, _MUCH = 1.005, 4


@dataclass(frozen=True)
class Split:
    """A step in stages: the IPU by the module that begins each, the operators where they begin, and what it costs.

    `work` is the share of the slowest stage of all work, from 1 / number of IPUs to 1; `num_bytes` is what the fullest
    IPU holds.
    """

    stages: Mapping[str, int]
    begins: Tuple[int, ...]
    ipus: Tuple[int, ...]
    work: float
    num_bytes: int


class _Tail(NamedTuple):
    """A last stage on IPU 0, which uses weights of the first stage again: where it begins, and what it must keep."""

    place: int
    least_first: int


class _Segment(NamedTuple):
    """Operators between two cuts as a stage: its share of the work, and its memory, apart from what waits for it."""

    work: float
    memory: StageMemory
    fixed: int

    def count_bytes(self, copies: int) -> float:
        """Return what the stage holds while so many micro-batches wait."""
        return balance_bytes(self.fixed + copies * self.memory.kept_bytes)

    def with_copies(self, copies: int) -> StageMemory:
        """Return the memory of the stage while so many micro-batches wait."""
        return balance_stage(replace(self.memory, kept_bytes=copies * self.memory.kept_bytes))


def collect_cuts(step: StepMemory, most: int = _MOST_CUTS) -> Dict[int, str]:
    """Return the places where a stage can begin, each with the outermost module that is called once and begins there.

    There are at most `most`: of each such part of the work, the place over which the fewest bytes pass.
    """
    names: Dict[int, str] = {}
    for name in step.called_once:
        place = step.begins.get(name, 0)
        if place and (place not in names or name.count(".") < names[place].count(".")):
            names[place] = name
    if len(names) <= most:
        return {place: names[place] for place in sorted(names)}
    crossing, lengths = _measure_crossing(step), _measure_work(step)
    bins: Dict[int, int] = {}
    for place in sorted(names, reverse=True):
        number = int(most * lengths[place])
        if number not in bins or crossing[place] <= crossing[bins[number]]:
            bins[number] = place
    return {place: names[place] for place in sorted(bins.values())}


def split_step(
    step: StepMemory, layout: Layout, num_ipus: int, *, limit: int, pins: Optional[Mapping[str, int]] = None
) -> Optional[Split]:
    """Cut `step` into stages on `num_ipus` IPUs, of which none holds more than `limit` bytes if that can be.

    `layout` says how the step is laid out besides. `pins` places modules on IPUs. None where the step has too few
    places to cut, or where no cut respects pins and keeps each weight on one IPU.
    """
    return Splitter(step, layout, pins).split(num_ipus, limit)


def _rate_split(split: Split, limit: int) -> float:
    return split.work if split.num_bytes <= limit else float(split.num_bytes)


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

    def __init__(self, step: StepMemory, layout: Layout, pins: Optional[Mapping[str, int]] = None) -> None:
        """Find the places where the step can be cut; `pins` places modules on IPUs."""
        self._step = step
        self._layout = replace(layout, recomputes=True, accumulates=True)
        self._names = collect_cuts(step)
        pins = pins or {}
        self._pins = {step.begins.get(name, 0): ipu for name, ipu in pins.items()}
        self._names.update({step.begins[name]: name for name in pins if step.begins.get(name, 0)})
        self._end = len(step.operations)
        self._works = _measure_work(step)
        self._resident = measure_resident(step, self._layout)
        self._uses = _list_uses(step)
        self._segments: Dict[Tuple[int, int], _Segment] = {}

    def split(self, num_ipus: int, limit: int) -> Optional[Split]:
        """Return the quickest stages on `num_ipus` IPUs that fit, or else quick ones that hold the least; or None."""
        splits = [self._choose_stages(num_ipus, limit, tail) for tail in (None, *self._iter_tails())]
        found = [split for split in splits if split is not None]
        return min(found, key=lambda split: (split.num_bytes > limit, _rate_split(split, limit)), default=None)

    def may_fit(self, num_ipus: int, limit: int) -> bool:
        """Tell whether weights and what belongs to them have room on `num_ipus` IPUs at all."""
        return self._resident[-1] <= num_ipus * limit

    def _iter_tails(self) -> Iterator[_Tail]:
        """List the places at the end where a stage on IPU 0 can begin that uses its weights again."""
        for positions in self._uses:
            late = [place for place in self._names if max(positions[0], self._end // 2) < place <= positions[-1]]
            for place in late[-_MOST_TAILS:]:
                yield _Tail(place, positions[0])

    def _choose_stages(self, num_ipus: int, limit: int, tail: Optional[_Tail]) -> Optional[Split]:
        """Return the best stages with this tail: the quickest within the limit, or else those with the least memory."""
        end = self._end if tail is None else tail.place
        places = [0, *(place for place in sorted(self._names) if place < end and self._may_cut(place, end)), end]
        if len(places) - 1 < num_ipus:
            return None
        begins = self._choose_begins(num_ipus, places, limit, tail)
        if begins is None:
            begins = self._choose_least(num_ipus, places, limit, tail)
        return None if begins is None else self._make_split(num_ipus, begins, tail)

    def _choose_least(
        self, num_ipus: int, places: Sequence[int], limit: float, tail: Optional[_Tail]
    ) -> Optional[Tuple[int, ...]]:
        """Return the quickest stages whose fullest IPU holds hardly more than the least that it can."""
        whole = self._find_segment(0, self._end).count_bytes(count_copies(0, num_ipus + 1))
        begins, high = None, max(limit, self._resident[-1] / num_ipus)
        while begins is None and high < _MUCH * whole:
            low, high = high, 1.5 * high
            begins = self._choose_begins(num_ipus, places, high, tail)
        while begins is not None and high > _NEAR * low:
            middle = (low + high) / 2
            found = self._choose_begins(num_ipus, places, middle, tail)
            low, high, begins = (middle, high, begins) if found is None else (low, middle, found)
        return begins

    def _may_cut(self, place: int, end: int) -> bool:
        """Tell whether a stage may begin here: no weight is used on both sides but those that a tail uses again."""
        return not any(
            positions[0] < place <= max(position for position in positions if position < end)
            for positions in self._uses
            if positions[0] < place
        )

    def _choose_begins(
        self, num_ipus: int, places: Sequence[int], limit: float, tail: Optional[_Tail]
    ) -> Optional[Tuple[int, ...]]:
        """Choose where stages begin, by dynamic programming over the IPUs and the places where a stage ends."""
        num_stages = num_ipus + (tail is not None)
        best: Dict[int, Tuple[float, Tuple[int, ...]]] = {0: (0.0, ())}
        for number in range(num_ipus):
            better: Dict[int, Tuple[float, Tuple[int, ...]]] = {}
            is_last = number == num_ipus - 1
            for begin, (cost, begins) in best.items():
                ends = places[-1:] if is_last else places[bisect.bisect_right(places, begin) : -1]
                for finish in ends:
                    if self._resident[finish] - self._resident[begin] > limit:
                        break
                    own = self._measure_work_of(begin, finish, number, num_stages, limit, tail)
                    if own is not None and (finish not in better or max(cost, own) < better[finish][0]):
                        better[finish] = (max(cost, own), (*begins, begin))
            best = better
        return best[places[-1]][1] if places[-1] in best else None

    def _measure_work_of(
        self, begin: int, finish: int, number: int, num_stages: int, limit: float, tail: Optional[_Tail]
    ) -> Optional[float]:
        """Return the work of a stage; None if it is not allowed, or does not fit."""
        if any(begin <= place < finish and ipu != number for place, ipu in self._pins.items()):
            return None
        segment, copies = self._find_segment(begin, finish), count_copies(number, num_stages)
        if number or tail is None:
            return segment.work if segment.count_bytes(copies) <= limit else None
        if finish <= tail.least_first:
            return None
        last = self._find_segment(tail.place, self._end)
        memory = join_stages(segment.with_copies(copies), last.memory, self._layout)
        return segment.work + last.work if memory.total_bytes <= limit else None

    def _find_segment(self, begin: int, finish: int) -> _Segment:
        key = (begin, finish)
        if key not in self._segments:
            begins = tuple(sorted({0, begin, finish} - {self._end}))
            layout = replace(self._layout, begins=begins, ipus=tuple(range(len(begins))))
            number = begins.index(begin)
            memory = measure_stage(self._step, layout, number, begin, finish)
            memory = replace(memory, kept_bytes=memory.kept_bytes // count_copies(number, len(begins)))
            fixed = memory.total_bytes - memory.kept_bytes - memory.imbalance_bytes
            self._segments[key] = _Segment(self._works[finish] - self._works[begin], memory, fixed)
        return self._segments[key]

    def _make_split(self, num_ipus: int, begins: Tuple[int, ...], tail: Optional[_Tail]) -> Split:
        ipus = tuple(range(len(begins)))
        stages = {self._names[place]: ipu for place, ipu in zip(begins[1:], ipus[1:])}
        if tail is not None:
            begins, ipus = (*begins, tail.place), (*ipus, 0)
            stages[self._names[tail.place]] = 0
        layout = replace(self._layout, begins=begins, ipus=ipus)
        memories = measure_ipus(self._step, layout)
        works = [0.0] * num_ipus
        for ipu, first, finish in layout.iter_stages(self._end):
            works[ipu] += self._works[finish] - self._works[first]
        return Split(stages, begins, ipus, max(works), max(memory.total_bytes for memory in memories))


def _list_uses(step: StepMemory) -> List[List[int]]:
    """Return for each parameter the operators that use it."""
    uses: Dict[str, List[int]] = {}
    for position, operation in enumerate(step.operations):
        for name in operation.parameters:
            uses.setdefault(name, []).append(position)
    return list(uses.values())
