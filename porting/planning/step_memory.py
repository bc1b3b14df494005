"""This module holds a step as a planner sees it: each value of one micro-batch, and who makes, reads and keeps it.

The walk through a step makes it; the memory model, the split and the throughput read it.
"""

from __future__ import annotations

import bisect
import collections
import functools
import math
from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Mapping, Set, Tuple

import torch

from ..capture import TensorInfo

__all__ = ["PRODUCTS", "Operation", "StepMemory", "Value", "count_device_bytes"]

PRODUCTS = frozenset(
    "linear matmul mm addmm bmm baddbmm einsum conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "convolution _convolution scaled_dot_product_attention bilinear lstm gru rnn_tanh rnn_relu".split()
)
"""Names of operators that multiply matrices."""


@dataclass
class Value:
    """The memory of a value: its bytes on the device, and the positions of the operators that make, read and keep it.

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
    names the modules whose output it makes. `flops` are its floating-point operations, a multiply-add being two.
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
    flops: int = 0
    is_half: bool = False
    is_convolution: bool = False


@dataclass(frozen=True)
class StepMemory:
    """A step as a planner sees it: operators in their order, values, parameters and buffers, and where it uses them.

    `called` are the modules in the order of their first call, each with the name of its class. `calls` are the places
    where a stage can begin: the first operator of each call, by the name that stages have for it. `operators` are the
    names of all operators.
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
    calls: Mapping[str, int]
    operators: FrozenSet[str] = frozenset()

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
    def num_uses(self) -> Mapping[str, int]:
        """How many operators use each parameter: a tied one has several."""
        return collections.Counter(name for operation in self.operations for name in operation.parameters)

    @functools.cached_property
    def _events(self) -> Dict[str, List[Tuple[int, int]]]:
        """Where values are kept and read, in order of the operators: the position, and the number of the value."""
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
