"""This module lays a step out as options, optimizer and machine say; plans measure what it returns."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ..diagnostics import OptionError
from ..machines import Chip, Machine
from ..options import PortOptions
from .memory_model import Layout, measure_ipus
from .optimizer_bytes import count_accumulator_bytes, count_state_bytes
from .split import Splitter
from .step_memory import StepMemory

__all__ = ["cut_stages", "make_layout"]

_NUMBERS_OF_IPUS = (1, 2, 4, 8, 16, 32, 64)


def make_layout(
    step: StepMemory, options: PortOptions, optimizer: Optional[torch.optim.Optimizer], chip: Chip
) -> Layout:
    """Lay the step out as options, optimizer and chip say."""
    begins: List[int] = []
    for number in range(len(options.stage_ipus)):
        default = begins[-1] if begins else 0
        found = (position for position, operation in enumerate(step.operations) if operation.stage == number)
        begins.append(next(found, default))
    is_pipeline = len(begins) > 1 and step.mode == "training"
    return Layout(
        begins=(0, *begins[1:]),
        ipus=options.stage_ipus,
        marks=step.ends_of(options.recompute),
        recomputes=is_pipeline or bool(options.recompute),
        accumulates=is_pipeline or options.accumulation > 1,
        state_bytes=count_state_bytes(optimizer),
        accumulator_bytes=count_accumulator_bytes(optimizer),
        state_off_chip=options.optimizer_state == "off_chip",
        state_shards=options.replicas if options.shard_optimizer_state else 1,
        capacity=chip.memory_bytes,
        program_bytes=chip.program_bytes,
        proportions=_list_shares(options.available_memory),
        serialized=_count_parts(step, options.serialize or {}),
        outputs=options.output_mode,
        outputs_every=options.output_every,
    )


def _count_parts(step: StepMemory, serialize: Mapping[str, int]) -> Mapping[str, int]:
    """Return the parts of a product or lookup by its module's parameters, which may have another module's names."""
    return {
        name: serialize[operation.module_path]
        for operation in step.operations
        if operation.module_path in serialize
        for name in operation.parameters
        # the gradient of a tied weight is there as a whole for its product
        if operation.is_product or step.num_uses[name] == 1
    }


def _list_shares(shares: Union[None, float, Sequence[float]]) -> Tuple[float, ...]:
    if shares is None:
        return ()
    return (shares,) * _NUMBERS_OF_IPUS[-1] if isinstance(shares, (int, float)) else tuple(shares)


def cut_stages(
    step: StepMemory, layout: Layout, options: PortOptions, machine: Machine, ipus: Optional[int], limit: int
) -> Tuple[Layout, Mapping[str, int]]:
    """Cut the step into stages, if options do not: on `ipus` IPUs, or on as few as it fits on, or on one."""
    if options.stages or ipus == 1:
        return layout, dict(options.stages or {})
    numbers = [ipus] if ipus is not None else [n for n in _NUMBERS_OF_IPUS if n <= machine.num_chips]
    splitter = Splitter(step, layout)
    for number in numbers:
        if number == 1:
            if max(memory.total_bytes for memory in measure_ipus(step, layout)) <= limit:
                break
            continue
        if ipus is None and not splitter.may_fit(number, limit):
            continue
        split = splitter.split(number, limit)
        if split is not None and (split.num_bytes <= limit or ipus is not None):
            trains = step.mode == "training"
            cut = replace(layout, begins=split.begins, ipus=split.ipus)
            return (replace(cut, recomputes=True, accumulates=True) if trains else cut), split.stages
        if split is None and ipus is not None:
            raise OptionError.at_caller(
                "P002",
                message=f"the step cannot be cut into stages on {ipus} IPUs",
                notes="a stage begins where a module is called that is called once, and keeps each weight on one IPU",
                help="ask for fewer IPUs",
            )
    return layout, {}
