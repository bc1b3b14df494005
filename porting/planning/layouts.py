"""This module lays a step out as options, optimizer and machine say; plans measure what it returns."""

from __future__ import annotations

from dataclasses import replace
from typing import List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ..diagnostics import OptionError
from ..machines import Chip, Machine, read_machines
from ..options import PortOptions
from .memory_look import FITS
from .memory_model import Layout, measure_ipus
from .optimizer_bytes import count_accumulator_bytes, count_state_bytes
from .split import Split, Splitter
from .step_memory import StepMemory

__all__ = ["cut_stages", "find_fitting", "find_limit", "find_smallest_machine", "make_layout"]

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
    """Cut the step into stages, if options do not: on `ipus` IPUs, or on as few as it fits on.

    It stays on one IPU where it fits on no number of them that the machine has.
    """
    if options.stages or ipus == 1:
        return layout, dict(options.stages or {})
    if ipus is None:
        return find_fitting(step, layout, options, limit, most=machine.num_chips) or (layout, {})
    splitter = Splitter(step, layout, accumulation=options.accumulation)
    split = splitter.split(ipus, limit)
    if split is None:
        raise OptionError.at_caller(
            "P002",
            message=f"the step cannot be cut into stages on {ipus} IPUs",
            notes="a stage begins with a call of a module, and each weight lies on one IPU",
            help=f"ask for no more than {min(splitter.most_ipus, ipus - 1)}",
        )
    return _lay_out(step, layout, split), split.stages


def find_fitting(
    step: StepMemory, layout: Layout, options: PortOptions, limit: int, *, most: int = _NUMBERS_OF_IPUS[-1]
) -> Optional[Tuple[Layout, Mapping[str, int]]]:
    """Return layout and stages on the fewest IPUs, up to `most`, of which none holds over `limit` bytes, or None."""
    whole = replace(layout, begins=(0,), ipus=(0,))
    if max(memory.total_bytes for memory in measure_ipus(step, whole)) <= limit:
        return whole, {}
    splitter = Splitter(step, whole, accumulation=options.accumulation)
    # tied weights may leave nothing for all IPUs that are reserved
    numbers = {min(number, splitter.most_ipus) for number in _NUMBERS_OF_IPUS if 1 < number <= most}
    for number in sorted(numbers - {1}):
        split = splitter.fit(number, limit)
        if split is not None:
            return _lay_out(step, whole, split), split.stages
    return None


def find_smallest_machine(layout: Layout, machine: Machine) -> Optional[Machine]:
    """Return the known machine with the fewest chips of the kind of `machine` that has room for a replica, or None."""
    known = (other for other in (machine, *read_machines().values()) if other.chip == machine.chip)
    large = (other for other in known if other.num_chips >= layout.num_ipus)
    return min(large, key=lambda other: other.num_chips, default=None)


def find_limit(chip: Chip) -> int:
    """Return the bytes that an IPU is planned to hold at most."""
    return int(FITS * chip.memory_bytes)


def _lay_out(step: StepMemory, layout: Layout, split: Split) -> Layout:
    cut = replace(layout, begins=split.begins, ipus=split.ipus)
    return replace(cut, recomputes=True, accumulates=True) if step.mode == "training" else cut
