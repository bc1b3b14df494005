"""This module follows the memory of one IPU while a micro-batch passes through it, forward and backward.

The page of a plan draws it. It has the terms of the memory model, each at the operators where it is there, so that no
moment holds more than the plan says, which adds the most of each.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Iterable, List, Sequence, Tuple

from .memory_model import (
    Layout,
    StageMemory,
    balance_bytes,
    count_copies,
    count_value_bytes,
    measure_moment,
    measure_waiting,
)
from .step_memory import StepMemory

__all__ = ["Moment", "trace_memory"]

_RESIDENT = (
    "weight_bytes",
    "buffer_bytes",
    "accumulator_bytes",
    "optimizer_bytes",
    "input_bytes",
    "code_bytes",
    "exchange_bytes",
)


@dataclass(frozen=True)
class Moment:
    """The bytes on an IPU while it runs an operator of `module` in a `phase`; `resident_bytes` of them always are.

    In a pipeline that is full, what other micro-batches have left to wait is among those.
    """

    phase: str
    module: str
    resident_bytes: int
    num_bytes: int


def trace_memory(step: StepMemory, layout: Layout, memory: StageMemory, *, most: int = 72) -> Tuple[Moment, ...]:
    """Follow the IPU of `memory` through one micro-batch, in `most` moments or fewer: each is the fullest of a few."""
    spans = list(layout.iter_stages(len(step.operations)))
    resident = sum(memory.parts[name] for name in _RESIDENT)
    forward: List[Moment] = []
    backward: List[Moment] = []
    traces = []
    for number in memory.stages:
        _ipu, first, end = spans[number]
        trace = _trace_stage(step, layout, number, first, end)
        resident += trace.others
        traces.append((first, trace))
    before = 0
    for first, trace in traces:
        for offset, (waits, comes_back) in enumerate(zip(trace.forward, trace.backward)):
            at = first + offset
            module = step.operations[at].module_path
            works = [measure_moment(step, layout, at, memory.ipu, is_backward=back) for back in (False, True)]
            forward.append(_make_moment("forward", module, resident, before + waits + works[0]))
            backward.append(_make_moment("backward", module, resident, before + comes_back + works[1]))
        # in inference nothing waits for a stage to come back
        before += trace.forward[-1] if trace.forward and step.mode == "training" else 0
    moments = _thin_out(forward, most // 2)
    return tuple(moments if step.mode != "training" else [*moments, *_thin_out(backward[::-1], most // 2)])


@dataclass(frozen=True)
class _Trace:
    """What waits at each operator of a stage, in both passes, and what other micro-batches have left there."""

    forward: Sequence[int]
    backward: Sequence[int]
    others: int


def _trace_stage(step: StepMemory, layout: Layout, number: int, first: int, end: int) -> _Trace:
    sizes = [count_value_bytes(value, layout) for value in step.values]
    made = [value.made_at for value in step.values]
    length = end - first
    if step.mode != "training":
        spans = (
            (max(at, first), max((at, *(read for read in value.read_at if read < end))), size)
            for value, at, size in zip(step.values, made, sizes)
            if 0 <= at < end
        )
        alive = _add_spans(((begin, last + 1, size) for begin, last, size in spans if last >= first), first, length)
        return _Trace(alive, [0] * length, 0)
    if not layout.recomputes:
        kept = step.collect_values("kept_at", first, end)
        needed = {value: min(at for at in step.values[value].kept_at if first <= at < end) for value in kept}
        return _Trace(
            _add_spans(((max(made[value], first), end, sizes[value]) for value in kept), first, length),
            _add_spans(((needed[value], end, sizes[value]) for value in kept), first, length),
            0,
        )
    marks = [mark for mark in layout.marks if first <= mark < end - 1]
    resident = {value for value in step.collect_values("read_at", first, end) if made[value] < first}
    resident.update(value for mark in marks for value in step.operations[mark].results)
    forward = _add_spans(((max(made[value], first), end, sizes[value]) for value in resident), first, length)
    backward: List[int] = []
    for begin, finish in zip([first, *(mark + 1 for mark in marks)], [*(mark + 1 for mark in marks), end]):
        again = step.collect_values("kept_at", begin, finish) - resident
        waits = sum(sizes[value] for value in resident if made[value] < finish)
        backward += [waits + sum(sizes[value] for value in again)] * (finish - begin)
    copies = count_copies(number, len(layout.begins))
    others = measure_waiting(step, layout, number, first, end)[0] * (copies - 1) // copies
    return _Trace(forward, backward, others)


def _add_spans(spans: Iterable[Tuple[int, int, int]], first: int, length: int) -> List[int]:
    """Add up the bytes that are there at each operator, from where each value begins to before it ends."""
    changes = [0] * (length + 1)
    for begin, end, size in spans:
        changes[begin - first] += size
        changes[min(end - first, length)] -= size
    return list(itertools.accumulate(changes))[:length]


def _make_moment(phase: str, module: str, resident: int, passing: int) -> Moment:
    return Moment(phase, module, int(balance_bytes(resident)), int(balance_bytes(resident + passing)))


def _thin_out(moments: Sequence[Moment], most: int) -> List[Moment]:
    """Take the fullest of every few moments, so that there are at most so many."""
    width = max(1, -(-len(moments) // most))
    groups = (moments[begin : begin + width] for begin in range(0, len(moments), width))
    return [max(group, key=lambda moment: moment.num_bytes) for group in groups]
