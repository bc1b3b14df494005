"""Compute the memory of each IPU from what a step leaves in it. This is pure arithmetic; every term has its reason.

For a pipeline of N stages, the memory of stage i = 0 .. N - 1 is:

    total = weights + buffers + accumulators + optimizer state + kept + recomputed + temporaries + inputs + code

* accumulators are there when gradients are accumulated; optimizer state by the optimizer's slots, float32 by default.
* kept waits for the backward pass: on one IPU all that it needs; in a pipeline, and with `recompute`, what enters the
  stage and what is marked, once for each micro-batch that is under way, 2 (N - i) - 1 of them (PopART, pipeline.cpp;
  the last stage begins its backward pass at once).
* recomputed is what the backward pass needs of the largest stretch between two marks, computed again at one time.
* temporaries are the larger of the backward pass at the largest result (twice its bytes) and the largest product of
  matrices (operands once more in its layout, partial sums in float32), and then the largest gradient of a weight. In
  inference, where nothing waits, the most that operators have made and others are still to read takes the place of the
  backward pass.
* code comes from three published profiles: 62.6 MB for 3 small layers, 96 MB for 24 layers, 88 MB for a convolutional
  network (graphcore/popliner, tests); a layer of these has about 8 products.

Not in it: gaps between variables (about 4 %), the unevenness of tiles, buffers of host streams and of the exchange
between replicas, what the compiler rearranges or shares. Five published figures came out within 6.4 % on average by
formulae of this kind; the worst tile of the vendor's own planner within 17 %.

A step's memory is data, a `StepMemory`: each value of the forward pass of one micro-batch, and the operators that make,
read and keep it.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Mapping, Sequence, Set, Tuple

import torch

from ..capture import TensorInfo

__all__ = [
    "PRODUCTS",
    "Layout",
    "Operation",
    "StageMemory",
    "StepMemory",
    "Value",
    "count_code_bytes",
    "count_device_bytes",
    "measure_ipus",
    "measure_stages",
]

PRODUCTS = frozenset(
    "linear matmul mm addmm bmm baddbmm einsum conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution _convolution scaled_dot_product_attention bilinear lstm gru rnn_tanh rnn_relu".split()
)
"""Names of operators that multiply matrices."""


@dataclass
class Value:
    """The memory of a value: its bytes on the device, and the positions of operators that make, read and keep it.

    `made_at` is -1 for inputs of the step. `is_of_batch` tells whether it grows with the micro-batch, `is_float`
    whether half precision halves it.
    """

    num_bytes: int
    made_at: int
    read_at: List[int]
    kept_at: List[int]
    is_of_batch: bool
    is_float: bool


@dataclass(frozen=True)
class Operation:
    """One operator of the forward pass: where it is, the bytes it makes and reads, and the parameters it uses.

    `results` are the numbers of its values; several operators have the same where one is a view of another's. `ends`
    names the modules whose output it makes.
    """

    module_path: str
    stage: int
    result_bytes: int
    operand_bytes: int
    is_product: bool
    is_float: bool
    ends: Tuple[str, ...]
    parameters: Tuple[str, ...]
    results: Tuple[int, ...]


@dataclass(frozen=True)
class StepMemory:
    """A step as a planner sees it: operators in their order, values, parameters and buffers, and where it uses them.

    `called` are the modules in the order of their first call, each with the name of its class, and `called_once` those
    where a stage can begin.
    """

    mode: str
    micro_batch: int
    operations: Tuple[Operation, ...]
    values: Tuple[Value, ...]
    parameters: Tuple[TensorInfo, ...]
    buffers: Tuple[TensorInfo, ...]
    first_uses: Mapping[str, int]
    input_bytes: int
    output_bytes: int
    called: Mapping[str, str]
    called_once: Tuple[str, ...]

    @property
    def kept_bytes(self) -> int:
        """The bytes of all values that the backward pass needs."""
        return sum(value.num_bytes for value in self.values if value.kept_at)

    def collect_values(self, kind: str, first: int, end: int) -> Set[int]:
        """Return the numbers of the values that operators `first` to `end` read ("read_at") or keep ("kept_at")."""
        events = self._events[kind]
        begin, finish = bisect.bisect_left(events, (first, -1)), bisect.bisect_left(events, (end, -1))
        return {number for _at, number in events[begin:finish]}

    def ends_of(self, names: Iterable[str]) -> Tuple[int, ...]:
        """Return the positions of the operators that make the outputs of modules."""
        wanted = frozenset(names)
        return tuple(position for position, op in enumerate(self.operations) if wanted.intersection(op.ends))

    @functools.cached_property
    def begins(self) -> Dict[str, int]:
        """The position of the first operator inside each module, by the module's name."""
        found: Dict[str, int] = {}
        for position, operation in enumerate(self.operations):
            parts = operation.module_path.split(".")
            for length in range(1, len(parts) + 1):
                found.setdefault(".".join(parts[:length]), position)
        return found

    @functools.cached_property
    def _events(self) -> Dict[str, List[Tuple[int, int]]]:
        """The places where values are kept and read, in order of the operators: the position and the value's number."""
        return {
            kind: sorted((at, number) for number, value in enumerate(self.values) for at in getattr(value, kind))
            for kind in ("kept_at", "read_at")
        }


def count_device_bytes(shape: Iterable[int], dtype: torch.dtype) -> int:
    """Return the bytes of a tensor on the device, whose integers and floats have 32 bits at most.

    >>> count_device_bytes((2, 5), torch.int64), count_device_bytes((2, 5), torch.float16)
    (40, 20)
    """
    # 64-bit types are for the host's kernels alone
    return math.prod(shape) * (4 if dtype in (torch.int64, torch.float64) else dtype.itemsize)


_CODE_BYTES = 55_000_000
_CODE_BYTES_PER_LAYER = 1_700_000
_PRODUCTS_PER_LAYER = 8
_FLOAT32_BYTES = 4
# the share of an IPU's memory that a product of matrices may take for itself by default (availableMemoryProportion)
_PRODUCT_PROPORTION = 0.6


@dataclass(frozen=True)
class Layout:
    """The layout of a step: the parts of `PortOptions` and the optimizer that affect memory.

    `begins` are the positions of the operators with which stages begin, the first of them 0, and `ipus` the IPU of
    each; `marks` are the positions of operators whose results are kept where others are computed again. `scale` is
    the micro-batch relative to the examined one; `halves` means that floats take half of the bytes that they took then.
    `accumulator_bytes` and `state_bytes` are those of the gradient and of the optimizer's state for each weight.
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

    @property
    def num_ipus(self) -> int:
        """The IPUs of a replica."""
        return max(self.ipus) + 1


@dataclass(frozen=True)
class StageMemory:
    """The bytes on one IPU by purpose; `stages` are the numbers of those that it runs."""

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

    @property
    def total_bytes(self) -> int:
        """All of it together."""
        return sum(self.parts.values())

    @property
    def parts(self) -> Dict[str, int]:
        """The bytes by name, in the order of the class."""
        return {name: value for name, value in self.__dict__.items() if name.endswith("_bytes")}


def measure_ipus(step: StepMemory, layout: Layout) -> Tuple[StageMemory, ...]:
    """Return the bytes on each IPU: those of all its stages, of which one at a time computes."""
    memories: Dict[int, StageMemory] = {}
    for one in measure_stages(step, layout):
        memories[one.ipu] = _join_stages(memories[one.ipu], one) if one.ipu in memories else one
    return tuple(memories[ipu] for ipu in sorted(memories))


def measure_stages(step: StepMemory, layout: Layout) -> List[StageMemory]:
    """Return the bytes of each stage of the pipeline."""
    ends = (*layout.begins[1:], len(step.operations))
    return [
        _measure_stage(step, layout, number, first, end) for number, (first, end) in enumerate(zip(layout.begins, ends))
    ]


def _measure_stage(step: StepMemory, layout: Layout, number: int, first: int, end: int) -> StageMemory:
    own = [info for info in step.parameters if first <= step.first_uses.get(info.name, 0) < end]
    buffers = [info for info in step.buffers if first <= step.first_uses.get(info.name, 0) < end]
    trained = [info for info in own if info.requires_grad and step.mode == "training"]
    num_trained = sum(math.prod(info.shape) for info in trained)
    kept, recomputed = _measure_waiting(step, layout, number, first, end)
    num_products = sum(operation.is_product for operation in step.operations[first:end])
    resident = 0 if layout.state_off_chip else num_trained * layout.state_bytes // layout.state_shards
    is_first, is_last = number == 0, number == len(layout.begins) - 1
    inputs = step.input_bytes * is_first + step.output_bytes * is_last
    return StageMemory(
        ipu=layout.ipus[number],
        stages=(number,),
        weight_bytes=sum(_count_state_bytes(info, layout) for info in own),
        buffer_bytes=sum(_count_state_bytes(info, layout) for info in buffers),
        accumulator_bytes=num_trained * layout.accumulator_bytes if layout.accumulates else 0,
        optimizer_bytes=resident,
        kept_bytes=kept,
        recomputed_bytes=recomputed,
        temporary_bytes=_measure_temporaries(step, layout, first, end, trained),
        input_bytes=int(inputs * layout.scale),
        code_bytes=count_code_bytes(num_products),
    )


def count_code_bytes(num_products: int) -> int:
    """Return the bytes of the code on an IPU that runs `num_products` products of matrices."""
    return int(_CODE_BYTES + _CODE_BYTES_PER_LAYER * num_products / _PRODUCTS_PER_LAYER)


def _join_stages(one: StageMemory, other: StageMemory) -> StageMemory:
    """Add up the memory of two stages on one IPU: temporaries and code, outlined where it is alike, are there once."""
    shared = ("temporary_bytes", "recomputed_bytes")
    sums = {name: value + other.parts[name] for name, value in one.parts.items()}
    sums.update({name: max(one.parts[name], other.parts[name]) for name in shared})
    sums["code_bytes"] -= _CODE_BYTES
    return replace(one, stages=(*one.stages, *other.stages), **sums)


# -- state -------------------------------------------------------------------------------------------------------------


def _count_state_bytes(info: TensorInfo, layout: Layout) -> int:
    num_bytes = count_device_bytes(info.shape, info.dtype)
    return num_bytes // 2 if layout.halves and info.dtype in (torch.float32, torch.float64) else num_bytes


# -- what waits for the backward pass ----------------------------------------------------------------------------------


def _measure_waiting(step: StepMemory, layout: Layout, number: int, first: int, end: int) -> Tuple[int, int]:
    """Return the bytes that wait, and those that the backward pass computes again at one time."""
    if step.mode != "training":
        return 0, 0
    if not layout.recomputes:
        return sum(
            _count_bytes(step.values[number], layout) for number in step.collect_values("kept_at", first, end)
        ), 0
    marks = [mark for mark in layout.marks if first <= mark < end - 1]
    resident = {value for value in step.collect_values("read_at", first, end) if step.values[value].made_at < first}
    resident.update(value for mark in marks for value in step.operations[mark].results)
    copies = 2 * (len(layout.begins) - number) - 1 if number < len(layout.begins) - 1 else 1
    waiting = sum(_count_bytes(step.values[value], layout) for value in resident)
    cuts = [first, *(mark + 1 for mark in marks), end]
    again = max(
        sum(
            _count_bytes(step.values[value], layout)
            for value in step.collect_values("kept_at", begin, finish) - resident
        )
        for begin, finish in zip(cuts, cuts[1:])
    )
    return copies * waiting, again


def _count_bytes(value: Value, layout: Layout) -> int:
    factor = layout.scale if value.is_of_batch else 1.0
    return int(value.num_bytes * factor * (0.5 if layout.halves and value.is_float else 1.0))


# -- temporaries -------------------------------------------------------------------------------------------------------


def _measure_temporaries(step: StepMemory, layout: Layout, first: int, end: int, trained: Sequence[TensorInfo]) -> int:
    operations = step.operations[first:end]
    if step.mode == "training":
        results = 2 * max((_scale_bytes(op.result_bytes, op, layout) for op in operations), default=0)
    else:
        results = _measure_most_alive(step, layout, first, end)
    # operands once more in the layout of the product, and partial sums, which are float32 in half precision too
    products = [
        int(_scale_bytes(op.operand_bytes, op, layout) + op.result_bytes * layout.scale)
        for op in operations
        if op.is_product
    ]
    product = max(products, default=0)
    if layout.capacity:
        product = min(product, int(_PRODUCT_PROPORTION * layout.capacity))
    gradient = max((_count_state_bytes(info, layout) for info in trained), default=0)
    update = 0
    if layout.state_off_chip:
        # the state of one tensor at a time comes to the chip for its update
        update = max((math.prod(info.shape) * layout.state_bytes // layout.state_shards for info in trained), default=0)
    return max(results, product, update) + gradient


def _measure_most_alive(step: StepMemory, layout: Layout, first: int, end: int) -> int:
    """Return the most bytes of results that are there at one operator: made by then, and read then or later."""
    changes = [0] * (end - first + 1)
    for value in step.values:
        last = max((value.made_at, *(at for at in value.read_at if at < end)))
        if value.made_at < 0 or value.made_at >= end or last < first:
            continue
        num_bytes = _count_bytes(value, layout)
        changes[max(value.made_at, first) - first] += num_bytes
        changes[last + 1 - first] -= num_bytes
    return max(itertools.accumulate(changes))


def _scale_bytes(num_bytes: int, operation: Operation, layout: Layout) -> int:
    return int(num_bytes * layout.scale * (0.5 if layout.halves and operation.is_float else 1.0))
