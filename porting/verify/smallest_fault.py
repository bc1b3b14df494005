"""The smallest fault that a proof would have caught: planted in records of plain PyTorch, and judged as the port is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Callable, Optional, Sequence

from porting.comparison.sketches import Sketch
from porting.verify.certificate import Sensitivity
from porting.verify.judgement import Judgement, judge_runs, list_outside
from porting.verify.noise_band import NoiseBand
from porting.verify.records import Record, Sketches

__all__ = ["SIZES", "find_smallest_fault", "plant_fault"]

# How many times its band a fault has to be: where something is outside, further runs are made, which widen the bands.
_HEADROOM = 3.0

SIZES = tuple(digit * 10.0**power for power in range(-6, 0) for digit in (1, 3)) + (1.0,)
"""By which parts of themselves gradients are made too large, one after another."""


def find_smallest_fault(judgement: Judgement, band: NoiseBand) -> Optional[Sensitivity]:
    """Find the smallest fault that is outside of `band`, planted in the plain run as well as in one that is rounded.

    It is one of the gradients if the port's were compared, else one of the updates; None where neither was.
    """
    kind = next((kind for kind in ("gradient", "update") if judgement.measured.get(kind)), "")
    if not kind or not band.runs:
        return None
    known = [band.plain, next((run for run in band.runs if run.num_steps == band.plain.num_steps), band.runs[0])]
    place = _find_first(SIZES, lambda size: all(_is_caught(record, band, kind, size) for record in known))
    caught, missed = SIZES[place : place + 1], SIZES[place - 1 : place] if place else ()
    return Sensitivity(kind, next(iter(caught), None), next(iter(missed), None))


def plant_fault(record: Record, kind: str, size: float) -> Record:
    """Return a record that has nothing but this kind, by a part of itself too large; losses are not compared."""
    planted = Record({record.num_steps: []})
    steps = record.list_steps("gradient" if kind == "gradient" else "parameter")
    start = None if kind == "gradient" else record.sketches["parameter", steps[0]]
    for step in steps:
        place = "gradient" if kind == "gradient" else "parameter", step
        planted.sketches[place] = _make_larger(record.sketches[place], size, start)
    return planted


def _make_larger(sketches: Sketches, size: float, start: Optional[Sketches]) -> Sketches:
    """Make tensors larger by a part of themselves, or of their way since the start."""

    def enlarge(name: str, sketch: Sketch) -> Sketch:
        way = sketch if start is None else sketch.minus(start[name])
        return replace(sketch, values=sketch.values + size * way.values)

    return {name: enlarge(name, sketch) for name, sketch in sketches.items()}


def _is_caught(record: Record, band: NoiseBand, kind: str, size: float) -> bool:
    found = judge_runs(band.plain, plant_fault(record, kind, size), band)
    return any(_HEADROOM < one.factor < math.inf for one in list_outside(found))


def _find_first(sizes: Sequence[float], is_caught: Callable[[float], bool]) -> int:
    """Return the place of the first size that is caught, and how many there are where none is: larger ones are."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_caught(sizes[middle]) else (middle + 1, high)
    return low
