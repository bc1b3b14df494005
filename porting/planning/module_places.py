"""This module says where each module of a model sits in a plan: its IPU, its weights and its share of the time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import groupby
from typing import List, Tuple

from ..machines import Machine
from .memory_model import Layout
from .step_memory import StepMemory, count_device_bytes
from .throughput import time_operators

__all__ = ["ModulePlace", "place_modules"]

_MOST_MODULES = 48


@dataclass(frozen=True)
class ModulePlace:
    """A module, or what of it is in one stage: `share` is its share of the time of its IPU."""

    module: str
    ipu: int
    stage: int
    num_operators: int
    weight_bytes: int
    share: float


def place_modules(step: StepMemory, layout: Layout, machine: Machine) -> Tuple[ModulePlace, ...]:
    """List modules in the order in which they run, as deep inside the model as at most 48 of them are."""
    times = [sum(seconds) for seconds in time_operators(step, layout, machine)]
    totals = [0.0] * layout.num_ipus
    stages: List[Tuple[int, int]] = []
    for number, (ipu, first, end) in enumerate(layout.iter_stages(len(step.operations))):
        stages += [(number, ipu)] * (end - first)
        totals[ipu] += sum(times[first:end])
    weights = [0] * (len(step.operations) + 1)
    for info in step.parameters:
        size = count_device_bytes(info.shape, info.dtype) * (0.5 if layout.halves else 1.0)
        weights[step.first_uses.get(info.name, 0)] += int(size)
    found = []
    for (module, number, ipu), group in groupby(
        zip(_name_modules(step), stages, range(len(stages))), key=lambda one: (one[0], *one[1])
    ):
        positions = [position for _name, _stage, position in group]
        seconds = sum(times[position] for position in positions)
        found.append(
            ModulePlace(
                module=module,
                ipu=ipu,
                stage=number,
                num_operators=len(positions),
                weight_bytes=sum(weights[position] for position in positions),
                share=seconds / totals[ipu] if totals[ipu] else math.nan,
            )
        )
    return tuple(found)


def _name_modules(step: StepMemory) -> List[str]:
    """Return the module of each operator, cut to the depth at which runs of one module are few enough."""
    paths = [operation.module_path.split(".") for operation in step.operations]
    best = ["the model"] * len(paths)
    for depth in range(1, 1 + max(map(len, paths), default=0)):
        names = [".".join(path[:depth]) or "the model" for path in paths]
        if sum(1 for _run in groupby(names)) > _MOST_MODULES:
            break
        best = names
    return best
