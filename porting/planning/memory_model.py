"""This module computes the memory of each IPU from what a step leaves in it; plans and warnings of memory use it.

It is pure arithmetic, and every term has its reason. For a pipeline of N stages, of which stage i = 0 .. N - 1 is
looked at:

    total = weights + buffers + accumulators + optimizer state + kept + recomputed + temporaries + inputs + code
            + exchange + imbalance

* accumulators are there when gradients are accumulated; optimizer state by the optimizer's slots, float32 by default.
* kept waits for the backward pass: on one IPU all that it needs; in a pipeline, and with `recompute`, what enters the
  stage and what is marked, once for each micro-batch that is under way, 2 (N - i) - 1 of them (PopART, pipeline.cpp;
  the last stage begins its backward pass at once).
* recomputed is what the backward pass needs of the largest stretch between two marks, computed again at one time.
* temporaries are the larger of the backward pass at the largest result (twice its bytes) and the largest product of
  matrices (operands once more in its layout, partial sums in float32), and then the largest gradient of a weight. A
  product takes no more than the available memory proportion, and a serialized one a part of it. In inference, where
  nothing waits, it is the most that operators have made and others are still to read, with the product of that moment.
* code and exchange come from three published profiles: 62.6 MB for 3 small layers, 96 MB for 24 layers, 88 MB for a
  convolutional network (graphcore/popliner, tests); a layer of these has about 8 products. Of them 45 % are code and
  vertex state, the rest is the code that exchanges and controls.
* imbalance are the gaps between variables and the tiles that hold more than others: 1631 MiB with gaps for 1562 without
  in the profile of mT5, 3.8 and 4.9 % at the fullest tile of BERT-large in halves.

Each term has an error, of which `error_bytes` is the sum of squares: weights and state are counted, what waits is
known but for what the compiler keeps besides, temporaries and code are estimates.

Not in it: what the compiler rearranges or shares, and host streams, which lie on the host.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from ..capture import TensorInfo
from .step_memory import Operation, StepMemory, Value, count_device_bytes

__all__ = [
    "Layout",
    "StageMemory",
    "balance_bytes",
    "balance_stage",
    "count_copies",
    "count_product_rounds",
    "count_program_bytes",
    "count_value_bytes",
    "join_stages",
    "measure_fullest",
    "measure_ipus",
    "measure_moment",
    "measure_resident",
    "measure_stage",
    "measure_stages",
    "measure_waiting",
]

_PROGRAM_BYTES = 55_000_000
_PROGRAM_BYTES_PER_LAYER = 1_700_000
_CODE_SHARE = 0.45
_IMBALANCE = 0.044
_PRODUCTS_PER_LAYER = 8
_FLOAT32_BYTES = 4
# the share of an IPU's memory that a product of matrices may take for itself by default (availableMemoryProportion)
_PRODUCT_PROPORTION = 0.6
# relative standard errors of the terms
_ERRORS: Mapping[str, float] = {
    "weight_bytes": 0.01,
    "buffer_bytes": 0.01,
    "accumulator_bytes": 0.01,
    "optimizer_bytes": 0.01,
    "kept_bytes": 0.1,
    "recomputed_bytes": 0.25,
    "temporary_bytes": 0.35,
    "input_bytes": 0.25,
    "code_bytes": 0.25,
    "exchange_bytes": 0.25,
    "imbalance_bytes": 0.5,
}


@dataclass(frozen=True)
class Layout:
    """How a step is laid out: what of `PortOptions` and the optimizer has to do with memory.

    `begins` are the positions of the operators with which stages begin, the first of them 0, and `ipus` the IPU of
    each; `marks` are the positions of operators whose results are kept where others are computed again. `scale` is
    the micro-batch for each of the one that was looked at; `halves` says that floats take half of what they took then.
    `accumulator_bytes` and `state_bytes` are those of the gradient and of the optimizer's state for each weight.
    `proportions` are the available memory proportions of the IPUs, and `serialized` gives parameters whose products are
    computed in so many parts. `program_bytes` is the program of a step without any layer, of the chip. `outputs` is the
    output mode, by which "sum" adds outputs up on the chip, and of "every_n" they are those of `outputs_every`.
    """

    begins: Tuple[int, ...]
    ipus: Tuple[int, ...]
    marks: Tuple[int, ...]
    recomputes: bool
    accumulates: bool
    state_bytes: int
    accumulator_bytes: int = _FLOAT32_BYTES
    scale: float = 1.0
    halves: bool = False
    state_off_chip: bool = False
    state_shards: int = 1
    capacity: int = 0
    program_bytes: int = _PROGRAM_BYTES
    proportions: Tuple[float, ...] = ()
    serialized: Mapping[str, int] = field(default_factory=dict, hash=False)
    outputs: str = "default"
    outputs_every: int = 1

    def iter_stages(self, num_operations: int) -> Iterator[Tuple[int, int, int]]:
        """Iterate over the stages: the IPU of each, its first operator, and the one after its last."""
        return zip(self.ipus, self.begins, (*self.begins[1:], num_operations))

    @property
    def num_ipus(self) -> int:
        """The IPUs of a replica."""
        return max(self.ipus) + 1


@dataclass(frozen=True)
class StageMemory:
    """The bytes on one IPU by what they are for; `stages` are the numbers of those that it runs."""

    ipu: int
    stages: Tuple[int, ...]
    weight_bytes: int = 0
    buffer_bytes: int = 0
    accumulator_bytes: int = 0
    optimizer_bytes: int = 0
    kept_bytes: int = 0
    recomputed_bytes: int = 0
    temporary_bytes: int = 0
    input_bytes: int = 0
    code_bytes: int = 0
    exchange_bytes: int = 0
    imbalance_bytes: int = 0

    @property
    def error_bytes(self) -> int:
        """The standard error of the sum, from those of the terms."""
        terms = (_ERRORS[name] * value for name, value in self.parts.items())
        return int(math.sqrt(sum(term * term for term in terms)))

    @property
    def total_bytes(self) -> int:
        """All of it together."""
        return sum(self.parts.values())

    @property
    def parts(self) -> Dict[str, int]:
        """The bytes by name, in the order of the class."""
        return {name: value for name, value in self.__dict__.items() if name.endswith("_bytes")}


def measure_ipus(step: StepMemory, layout: Layout) -> Tuple[StageMemory, ...]:
    """Return what each IPU holds: all of its stages, of which one at a time computes."""
    memories: Dict[int, StageMemory] = {}
    for one in measure_stages(step, layout):
        memories[one.ipu] = join_stages(memories[one.ipu], one, layout) if one.ipu in memories else one
    return tuple(memories[ipu] for ipu in sorted(memories))


def measure_fullest(step: StepMemory, layout: Layout) -> int:
    """Return the bytes of the IPU that holds the most."""
    return max(memory.total_bytes for memory in measure_ipus(step, layout))


def measure_resident(step: StepMemory, layout: Layout) -> List[int]:
    """Return the bytes of weights, gradients and optimizer state that are first used before each operator, and all."""
    changes = [0] * (len(step.operations) + 1)
    for info in step.parameters:
        changes[step.first_uses.get(info.name, 0) + 1] += _count_state_bytes(info, layout)
        if info.requires_grad and step.mode == "training":
            width: float = layout.accumulator_bytes * layout.accumulates
            width += 0 if layout.state_off_chip else layout.state_bytes / layout.state_shards
            changes[step.first_uses.get(info.name, 0) + 1] += int(math.prod(info.shape) * width)
    return list(itertools.accumulate(changes))


def measure_stages(step: StepMemory, layout: Layout) -> List[StageMemory]:
    """Return what each stage of the pipeline holds."""
    spans = layout.iter_stages(len(step.operations))
    return [measure_stage(step, layout, number, first, end) for number, (_ipu, first, end) in enumerate(spans)]


def measure_stage(step: StepMemory, layout: Layout, number: int, first: int, end: int) -> StageMemory:
    """Return what the operators `first` to `end` hold as stage `number` of the layout."""
    own = [info for info in step.parameters if first <= step.first_uses.get(info.name, 0) < end]
    buffers = [info for info in step.buffers if first <= step.first_uses.get(info.name, 0) < end]
    trained = [info for info in own if info.requires_grad and step.mode == "training"]
    num_trained = sum(math.prod(info.shape) for info in trained)
    kept, recomputed = measure_waiting(step, layout, number, first, end)
    program = count_program_bytes(
        sum(operation.is_product for operation in step.operations[first:end]), layout.program_bytes
    )
    resident = 0 if layout.state_off_chip else num_trained * layout.state_bytes // layout.state_shards
    is_first, is_last = number == 0, number == len(layout.begins) - 1
    # "sum" adds outputs up on the chip
    outputs = step.output_bytes * (2 if layout.outputs == "sum" and step.mode == "training" else 1)
    inputs = step.input_bytes * is_first + outputs * is_last
    return balance_stage(
        StageMemory(
            ipu=layout.ipus[number],
            stages=(number,),
            weight_bytes=sum(_count_state_bytes(info, layout) for info in own),
            buffer_bytes=sum(_count_state_bytes(info, layout) for info in buffers),
            accumulator_bytes=num_trained * layout.accumulator_bytes if layout.accumulates else 0,
            optimizer_bytes=resident,
            kept_bytes=kept,
            recomputed_bytes=recomputed,
            temporary_bytes=_measure_temporaries(step, layout, number, first, end, trained),
            input_bytes=int(inputs * layout.scale),
            code_bytes=int(_CODE_SHARE * program),
            exchange_bytes=program - int(_CODE_SHARE * program),
        )
    )


def count_program_bytes(num_products: int, least: int = _PROGRAM_BYTES) -> int:
    """Return the bytes of code and exchange on an IPU that runs `num_products` products of matrices."""
    return int(least + _PROGRAM_BYTES_PER_LAYER * num_products / _PRODUCTS_PER_LAYER)


def balance_stage(memory: StageMemory) -> StageMemory:
    """Add the gaps and the unevenness of tiles to the other terms."""
    even = replace(memory, imbalance_bytes=0)
    return replace(even, imbalance_bytes=int(balance_bytes(even.total_bytes) - even.total_bytes))


def balance_bytes(num_bytes: float) -> float:
    """Return the bytes that even tiles would hold with the gaps and the unevenness of real ones."""
    return num_bytes * (1 + _IMBALANCE)


def join_stages(one: StageMemory, other: StageMemory, layout: Layout) -> StageMemory:
    """Add up the memory of two stages on one IPU: temporaries and code, outlined where it is alike, are there once."""
    shared = ("temporary_bytes", "recomputed_bytes")
    sums = {name: value + other.parts[name] for name, value in one.parts.items()}
    sums.update({name: max(one.parts[name], other.parts[name]) for name in shared})
    sums["code_bytes"] -= int(_CODE_SHARE * layout.program_bytes)
    sums["exchange_bytes"] -= layout.program_bytes - int(_CODE_SHARE * layout.program_bytes)
    return balance_stage(replace(one, stages=(*one.stages, *other.stages), **sums))


# -- state -------------------------------------------------------------------------------------------------------------


def _count_state_bytes(info: TensorInfo, layout: Layout) -> int:
    num_bytes = count_device_bytes(info.shape, info.dtype)
    return num_bytes // 2 if layout.halves and info.dtype in (torch.float32, torch.float64) else num_bytes


# -- what waits for the backward pass ----------------------------------------------------------------------------------


def measure_waiting(step: StepMemory, layout: Layout, number: int, first: int, end: int) -> Tuple[int, int]:
    """Return the bytes that wait in a stage, and those that its backward pass computes again at one time."""
    if step.mode != "training":
        return 0, 0
    if not layout.recomputes:
        return sum(
            count_value_bytes(step.values[number], layout) for number in step.collect_values("kept_at", first, end)
        ), 0
    marks = [mark for mark in layout.marks if first <= mark < end - 1]
    resident = {value for value in step.collect_values("read_at", first, end) if step.values[value].made_at < first}
    resident.update(value for mark in marks for value in step.operations[mark].results)
    copies = count_copies(number, len(layout.begins))
    waiting = sum(count_value_bytes(step.values[value], layout) for value in resident)
    cuts = [first, *(mark + 1 for mark in marks), end]
    again = max(
        sum(
            count_value_bytes(step.values[value], layout)
            for value in step.collect_values("kept_at", begin, finish) - resident
        )
        for begin, finish in zip(cuts, cuts[1:])
    )
    return copies * waiting, again


def count_copies(number: int, num_stages: int) -> int:
    """Return how many micro-batches wait in stage `number`: 2 (N - i) - 1, and 1 in the last (PopART, pipeline.cpp).

    >>> [count_copies(number, 4) for number in range(4)]
    [7, 5, 3, 1]
    """
    return 2 * (num_stages - number) - 1


def count_value_bytes(value: Value, layout: Layout) -> int:
    """Return the bytes of a value as the layout has it: of its micro-batch, and in its precision."""
    factor = layout.scale if value.is_of_batch else 1.0
    return int(value.num_bytes * factor * (0.5 if layout.halves and value.is_float else 1.0))


# -- temporaries -------------------------------------------------------------------------------------------------------


def _measure_temporaries(
    step: StepMemory, layout: Layout, number: int, first: int, end: int, trained: Sequence[TensorInfo]
) -> int:
    operations = step.operations[first:end]
    bound = _bound_product(layout, layout.ipus[number])
    products = [_measure_product(operation, layout, bound) for operation in operations]
    if step.mode != "training":
        return _measure_most_alive(step, layout, first, end, products)
    results = 2 * max(_scale_bytes(op.result_bytes, op, layout) // _count_parts(op, layout) for op in operations)
    update = 0
    if layout.state_off_chip:
        # the state of one tensor at a time comes to the chip for its update
        width = layout.state_bytes / layout.state_shards
        update = max((_count_parts_of(info, layout, width) for info in trained), default=0)
    gradient = max(
        (_count_state_bytes(info, layout) // layout.serialized.get(info.name, 1) for info in trained), default=0
    )
    return max(results, max(products), update) + gradient


def measure_moment(step: StepMemory, layout: Layout, position: int, ipu: int, *, is_backward: bool) -> int:
    """Return the bytes that an operator needs for itself in one pass: its result, a product, and a gradient."""
    operation = step.operations[position]
    results = _scale_bytes(operation.result_bytes, operation, layout) // _count_parts(operation, layout)
    product = _measure_product(operation, layout, _bound_product(layout, ipu))
    if not is_backward:
        return product if step.mode == "inference" else max(results, product)
    own = (info for info in step.parameters if info.name in operation.parameters and info.requires_grad)
    return max(2 * results, product) + max(
        (_count_state_bytes(info, layout) // layout.serialized.get(info.name, 1) for info in own), default=0
    )


def count_product_rounds(operation: Operation, layout: Layout, ipu: int) -> float:
    """Return in how many rounds a product is computed: its parts, or more where it may not take the memory it wants."""
    if not operation.is_product:
        return 1.0
    parts, bound = _count_parts(operation, layout), _bound_product(layout, ipu)
    return parts * max(1.0, _measure_product(operation, layout, None) / bound if bound else 1.0)


def _bound_product(layout: Layout, ipu: int) -> Optional[int]:
    proportion = layout.proportions[ipu] if ipu < len(layout.proportions) else _PRODUCT_PROPORTION
    return int(proportion * layout.capacity) if layout.capacity else None


def _measure_product(operation: Operation, layout: Layout, bound: Optional[int]) -> int:
    """Return the bytes that a product takes for itself: operands in its own layout, and partial sums in float32."""
    if not operation.is_product:
        return 0
    wanted = _scale_bytes(operation.operand_bytes, operation, layout) + int(operation.result_bytes * layout.scale)
    wanted //= _count_parts(operation, layout)
    return wanted if bound is None else min(wanted, bound)


def _count_parts(operation: Operation, layout: Layout) -> int:
    """Return in how many parts a product is computed, one after the other; the result of a lookup is there at once."""
    if not operation.is_product:
        return 1
    return max((layout.serialized.get(name, 1) for name in operation.parameters), default=1)


def _count_parts_of(info: TensorInfo, layout: Layout, bytes_per_weight: float) -> int:
    return int(math.prod(info.shape) * bytes_per_weight) // layout.serialized.get(info.name, 1)


def _measure_most_alive(step: StepMemory, layout: Layout, first: int, end: int, products: Sequence[int]) -> int:
    """Return the most bytes at one operator: results made by then and read then or later, and its own temporaries."""
    changes = [0] * (end - first + 1)
    for value in step.values:
        last = max((value.made_at, *(at for at in value.read_at if at < end)))
        if value.made_at < 0 or value.made_at >= end or last < first:
            continue
        num_bytes = count_value_bytes(value, layout)
        changes[max(value.made_at, first) - first] += num_bytes
        changes[last + 1 - first] -= num_bytes
    return max(map(sum, zip(itertools.accumulate(changes), products)))


def _scale_bytes(num_bytes: int, operation: Operation, layout: Layout) -> int:
    return int(num_bytes * layout.scale * (0.5 if layout.halves and operation.is_float else 1.0))
