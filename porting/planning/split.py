"""This module cuts a step into the stages of a pipeline: the slowest stage is as quick as the memory of IPUs allows.

Plans use it. It is a dynamic program over the places where a stage can begin, and its memory depends on the stage's
number, because earlier stages keep more micro-batches.
"""

from __future__ import annotations

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
    measure_stage,
)
from .step_memory import StepMemory

__all__ = ["Split", "collect_cuts", "split_step"]

_MOST_CUTS = 64


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
    """Operators between two cuts as a stage: its share of the work, and its memory while one micro-batch waits."""

    work: float
    memory: StageMemory
    other_bytes: int

    def count_bytes(self, copies: int) -> int:
        """Return what `with_copies` holds, without making it: the search asks a million times."""
        return int(balance_bytes(self.other_bytes + copies * self.memory.kept_bytes))

    def with_copies(self, copies: int) -> StageMemory:
        """Return the memory of a stage in which so many micro-batches wait."""
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
    problem = _Problem(step, layout, num_ipus, pins or {})
    splits = [problem.solve(limit, tail) for tail in (None, *problem.iter_tails())]
    found = [split for split in splits if split is not None]
    return min(found, key=lambda split: (split.num_bytes > limit, _rate_split(split, limit)), default=None)


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


class _Problem:
    """One step and one number of IPUs: what each stage would cost, and the best stages for a limit of memory."""

    def __init__(self, step: StepMemory, layout: Layout, num_ipus: int, pins: Mapping[str, int]) -> None:
        self._step, self._num_ipus = step, num_ipus
        self._layout = replace(layout, recomputes=True, accumulates=True)
        self._names = collect_cuts(step)
        self._pins = {step.begins.get(name, 0): ipu for name, ipu in pins.items()}
        self._names.update({step.begins[name]: name for name in pins if step.begins.get(name, 0)})
        self._end = len(step.operations)
        self._works = _measure_work(step)
        self._shared = list(_iter_shared(step))
        self._segments: Dict[Tuple[int, int], _Segment] = {}

    def iter_tails(self) -> Iterator[_Tail]:
        """List the places at the end where a stage on IPU 0 can begin that uses its weights again."""
        for first, last in self._shared:
            for place in self._names:
                if first < place <= last and place > self._end // 2:
                    yield _Tail(place, first)

    def solve(self, limit: int, tail: Optional[_Tail]) -> Optional[Split]:
        """Return the best stages with this tail: the quickest within the limit, or else those with the least memory."""
        end = self._end if tail is None else tail.place
        places = [0, *(place for place in sorted(self._names) if self._may_cut(place, tail) and place < end), end]
        if len(places) - 1 < self._num_ipus:
            return None
        begins = self._choose_begins(places, limit, tail)
        if begins is None:
            begins = self._choose_begins(places, None, tail)
            # nothing fits: the quickest of those whose fullest IPU holds the least
            begins = begins and self._choose_begins(places, self._make_split(begins, tail).num_bytes, tail)
        return None if begins is None else self._make_split(begins, tail)

    def _may_cut(self, place: int, tail: Optional[_Tail]) -> bool:
        """Tell whether a stage may begin here: no weight is used on both sides but those that the tail uses again."""
        end = self._end if tail is None else tail.place
        return not any(first < place <= last for first, last in self._iter_shared_before(end))

    def _iter_shared_before(self, end: int) -> Iterator[Tuple[int, int]]:
        for positions in _list_uses(self._step):
            before = [position for position in positions if position < end]
            if len(before) > 1:
                yield before[0], before[-1]

    def _choose_begins(
        self, places: Sequence[int], limit: Optional[int], tail: Optional[_Tail]
    ) -> Optional[Tuple[int, ...]]:
        """Choose where stages begin, by dynamic programming; without a limit the fullest IPU holds the least."""
        num_stages = self._num_ipus + (tail is not None)
        best: Dict[int, Tuple[float, Tuple[int, ...]]] = {0: (0.0, ())}
        for number in range(self._num_ipus):
            better: Dict[int, Tuple[float, Tuple[int, ...]]] = {}
            for begin, (cost, begins) in best.items():
                for finish in places:
                    if finish <= begin or (finish == places[-1]) != (number == self._num_ipus - 1):
                        continue
                    if finish in better and better[finish][0] <= cost:
                        continue
                    own = self._measure_cost(begin, finish, number, num_stages, limit, tail)
                    if own is None:
                        continue
                    found = max(cost, own)
                    if finish not in better or found < better[finish][0]:
                        better[finish] = (found, (*begins, begin))
            best = better
        return best[places[-1]][1] if places[-1] in best else None

    def _measure_cost(
        self, begin: int, finish: int, number: int, num_stages: int, limit: Optional[int], tail: Optional[_Tail]
    ) -> Optional[float]:
        """Return the cost of a stage: its work, or its bytes without a limit; None if it is not allowed."""
        if any(begin <= place < finish and ipu != number for place, ipu in self._pins.items()):
            return None
        segment, copies = self._find_segment(begin, finish), count_copies(number, num_stages)
        num_bytes, work = segment.count_bytes(copies), segment.work
        if number == 0 and tail is not None:
            if finish <= tail.least_first:
                return None
            last = self._find_segment(tail.place, self._end)
            num_bytes = join_stages(segment.with_copies(copies), last.memory, self._layout).total_bytes
            work += last.work
        if limit is None:
            return float(num_bytes)
        return work if num_bytes <= limit else None

    def _find_segment(self, begin: int, finish: int) -> _Segment:
        key = (begin, finish)
        if key not in self._segments:
            begins = tuple(sorted({0, begin, finish} - {self._end}))
            layout = replace(self._layout, begins=begins, ipus=tuple(range(len(begins))))
            number = begins.index(begin)
            memory = measure_stage(self._step, layout, number, begin, finish)
            memory = replace(memory, kept_bytes=memory.kept_bytes // count_copies(number, len(begins)))
            others = memory.total_bytes - memory.imbalance_bytes - memory.kept_bytes
            self._segments[key] = _Segment(self._works[finish] - self._works[begin], memory, others)
        return self._segments[key]

    def _make_split(self, begins: Tuple[int, ...], tail: Optional[_Tail]) -> Split:
        ipus = tuple(range(len(begins)))
        stages = {self._names[place]: ipu for place, ipu in zip(begins[1:], ipus[1:])}
        if tail is not None:
            begins, ipus = (*begins, tail.place), (*ipus, 0)
            stages[self._names[tail.place]] = 0
        memories = measure_ipus(self._step, replace(self._layout, begins=begins, ipus=ipus))
        works = [0.0] * self._num_ipus
        for first, finish, ipu in zip(begins, (*begins[1:], self._end), ipus):
            works[ipu] += self._works[finish] - self._works[first]
        return Split(stages, begins, ipus, max(works), max(memory.total_bytes for memory in memories))


def _list_uses(step: StepMemory) -> List[List[int]]:
    """Return for each parameter the operators that use it."""
    uses: Dict[str, List[int]] = {}
    for position, operation in enumerate(step.operations):
        for name in operation.parameters:
            uses.setdefault(name, []).append(position)
    return list(uses.values())


def _iter_shared(step: StepMemory) -> Iterator[Tuple[int, int]]:
    """List the first and the last use of each parameter that several operators use."""
    for positions in _list_uses(step):
        if positions[-1] > positions[0]:
            yield positions[0], positions[-1]
