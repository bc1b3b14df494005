"""Plan of a device call: the rows of each of its micro-batches, what comes back, and how gradients are summed."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import AbstractSet, Callable, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

import torch

__all__ = [
    "CallPlan",
    "GradientExchange",
    "MicroBatch",
    "OutputCollector",
    "ReplicaGroups",
    "Runs",
    "cut_rows",
    "detach_result",
    "make_synthetic_inputs",
    "prepare_rows",
    "sum_over_processes",
]


class MicroBatch(NamedTuple):
    """One micro-batch of a call: its `number` among those of its `replica`, its `position` in the rows of an input."""

    number: int
    replica: int
    position: int


@dataclass(frozen=True)
class ReplicaGroups:
    """`replicas` in groups of `size`, neighbours together or, `strided`, as far apart as there are groups.

    `returns_all` says that the host gets the value of every replica, not only of each group's first one.

    >>> groups = ReplicaGroups(replicas=4, size=2)
    >>> [groups.find_group(replica) for replica in range(4)]
    [0, 0, 1, 1]
    >>> groups = ReplicaGroups(replicas=4, size=2, strided=True)
    >>> [groups.find_group(replica) for replica in range(4)]
    [0, 1, 0, 1]
    """

    replicas: int
    size: int = 1
    strided: bool = False
    returns_all: bool = False

    @property
    def num_groups(self) -> int:
        """How many groups there are."""
        return self.replicas // self.size

    def find_group(self, replica: int) -> int:
        """Return the group that a replica belongs to."""
        return replica % self.num_groups if self.strided else replica // self.size

    def find_first_replica(self, group: int) -> int:
        """Return the replica whose value stands for its group's."""
        return group if self.strided else group * self.size


# Micro-batches that run at once, grouped by optimizer step.
Runs = Tuple[Tuple[Tuple[MicroBatch, ...], ...], ...]


@dataclass(frozen=True)
class CallPlan:
    """Device iterations x accumulation x replicas, how gradients are reduced, and the output mode of a call.

    `output_mode` is "all", "final", "sum" or "every_n"; with "every_n" each `output_period`-th result is kept.
    `mean_reduction` divides the gradient of a step by accumulation x replicas x processes; `exchange` adds up the
    gradients of all `processes`. Replicas of one of `input_groups` get the same rows. `adapts_loss_scaling` fits the
    loss scaling to the range of half-precision gradients after each step; with `rounds_at_random` weights and optimizer
    state in half precision are rounded up or down at random. `checks_floats` makes operators raise whose result
    is not a number or infinite. `synthetic` names the numbers that the device makes up instead of reading its inputs,
    as `make_synthetic_inputs` calls them. With `divides_last` the mean is taken of the accumulated gradient: small
    gradients in half precision are then not divided, and none of them vanishes.
    """

    iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    mean_reduction: bool = True
    output_mode: str = "final"
    output_period: int = 1
    input_groups: Optional[ReplicaGroups] = None
    processes: int = 1
    exchange: Optional[GradientExchange] = None
    adapts_loss_scaling: bool = False
    rounds_at_random: bool = False
    checks_floats: bool = False
    synthetic: str = ""
    divides_last: bool = False

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of one call over all replicas.

        >>> CallPlan(iterations=2, accumulation=3, replicas=4).num_micro_batches
        24
        """
        return self.iterations * self.accumulation * self.replicas

    # Cached, as `steps` is: both are asked for in every call, and a plan lasts for all calls of an executable.
    @cached_property
    def num_slices(self) -> int:
        """Into how many micro-batches the rows of an input are cut: those of one replica of each input group."""
        return self.num_micro_batches // (1 if self.input_groups is None else self.input_groups.size)

    @property
    def gradient_scale(self) -> float:
        """Factor of each micro-batch's gradient in the gradient of its step."""
        return 1.0 / (self.accumulation * self.replicas * self.processes) if self.mean_reduction else 1.0

    @property
    def backward_scale(self) -> float:
        """Factor of a micro-batch's loss when its backward pass begins, besides the loss scaling."""
        return 1.0 if self.divides_last else self.gradient_scale

    @property
    def update_scale(self) -> float:
        """Factor of the accumulated gradient when a step ends."""
        return self.gradient_scale if self.divides_last else 1.0

    @cached_property
    def steps(self) -> Tuple[Tuple[MicroBatch, ...], ...]:
        """The micro-batches of each optimizer step.

        Rows are laid out as [iteration][accumulation][replica], or with input groups of several replicas as
        [group][iteration][accumulation].
        """
        numbers = range(self.iterations * self.accumulation)
        return tuple(
            tuple(
                MicroBatch(number, replica, self._find_position(number, replica))
                for number in numbers[first : first + self.accumulation]
                for replica in range(self.replicas)
            )
            for first in numbers[:: self.accumulation]
        )

    @cached_property
    def micro_batches(self) -> Tuple[MicroBatch, ...]:
        """The micro-batches of all steps, one after the other."""
        return tuple(itertools.chain.from_iterable(self.steps))

    def cut_into_runs(self, most: int, *, keeps_steps: bool) -> Runs:
        """Cut each optimizer step, or without `keeps_steps` the whole call, into runs of at most `most` micro-batches.

        >>> [[len(run) for run in runs] for runs in CallPlan(2, accumulation=3).cut_into_runs(2, keeps_steps=True)]
        [[2, 1], [2, 1]]
        """
        steps = self.steps if keeps_steps else (self.micro_batches,)
        return tuple(tuple(step[first : first + most] for first in range(0, len(step), most)) for step in steps)

    def _find_position(self, number: int, replica: int) -> int:
        # The vendor's layout of a batch: replicas are the innermost part of its rows, unless several of them get the
        # same ones. Then each group has a block of its own.
        if self.input_groups is None or self.input_groups.size == 1:
            return number * self.replicas + replica
        return self.input_groups.find_group(replica) * self.iterations * self.accumulation + number

    def keeps(self, micro_batch: MicroBatch) -> bool:
        """Tell whether the results of `micro_batch` come back to the host."""
        if self.output_mode == "final":
            return micro_batch.number == self.iterations * self.accumulation - 1
        if self.output_mode == "every_n":
            return (micro_batch.number + 1) % self.output_period == 0
        return True

    @property
    def num_kept(self) -> int:
        """How many micro-batches' results the host has room for; with "every_n" the division is one of integers."""
        if self.output_mode == "all":
            return self.num_micro_batches
        return self.num_micro_batches // self.output_period if self.output_mode == "every_n" else self.replicas


class OutputCollector:
    """Gathers the results of a call's micro-batches as the output mode asks.

    Results whose index is in `constant` do not depend on the micro-batch and come back once, as they are.
    """

    def __init__(self, plan: CallPlan, *, constant: FrozenSet[int] = frozenset()) -> None:
        """Start an empty collection for one call of `plan`."""
        self._plan = plan
        self._constant = constant
        self._kept: List[Sequence[torch.Tensor]] = []
        self._sums: List[Optional[List[torch.Tensor]]] = [None] * plan.replicas

    # PopTorch returns tensors of the right shape even if the period of "every_n" is longer than the call, so that one
    # result is needed as a pattern.
    def wants(self, micro_batch: MicroBatch) -> bool:
        """Tell whether the results of `micro_batch` are needed; those of the last show shapes if nothing is kept."""
        return self._plan.keeps(micro_batch) or (not self._kept and micro_batch.position == self._plan.num_slices - 1)

    def add(self, micro_batch: MicroBatch, results: Sequence[torch.Tensor]) -> None:
        """Take the results of one micro-batch; they must not change afterwards."""
        if self._plan.output_mode == "sum":
            # Each replica adds up for itself; the host joins the sums.
            sums = self._sums[micro_batch.replica]
            self._sums[micro_batch.replica] = [
                result if sums is None or index in self._constant else sums[index] + result
                for index, result in enumerate(results)
            ]
        elif self._plan.keeps(micro_batch):
            self._kept.append(results)
        elif self.wants(micro_batch):
            self._kept.append(
                [
                    result if index in self._constant else torch.zeros_like(result)
                    for index, result in enumerate(results)
                ]
            )

    def combine(self) -> List[torch.Tensor]:
        """Return one tensor for each result: micro-batches joined along dimension 0, scalars stacked.

        A single micro-batch keeps its shape, so that a scalar loss stays a scalar. Where the period of "every_n" does
        not divide the micro-batches of a replica, the rest of the host's memory stays zero.
        """
        kept = [sums for sums in self._sums if sums is not None] if self._plan.output_mode == "sum" else self._kept
        # the only result of the call: nothing to join, and a scalar has no dimension to be stacked along
        if len(kept) == 1 and self._plan.num_kept <= 1:
            return list(kept[0])
        return [
            parts[-1] if index in self._constant else _join_parts(parts, self._plan.num_kept)
            for index, parts in enumerate(zip(*kept))
        ]


def _join_parts(parts: Sequence[torch.Tensor], num_wanted: int) -> torch.Tensor:
    missing = [torch.zeros_like(parts[0])] * (num_wanted - len(parts))
    joined = [*parts, *missing]
    return torch.stack(joined) if parts[0].dim() == 0 else torch.cat(joined)


# -- tensors -----------------------------------------------------------------------------------------------------------


def cut_rows(tensor: torch.Tensor, position: int, num_slices: int) -> torch.Tensor:
    """Cut the rows at `position` out of an input of `num_slices` micro-batches; a scalar is the same for all."""
    if num_slices == 1 or tensor.dim() == 0:
        return tensor
    rows = tensor.shape[0] // num_slices
    return tensor.narrow(0, position * rows, rows)


# The host's own tensors must not change. And autograd keeps what it needs of an input for the backward pass, which it
# cannot do with a tensor of inference mode.
def prepare_rows(rows: torch.Tensor, *, is_written: bool, trains: bool) -> torch.Tensor:
    """Return rows of an input as a graph may use them: a copy where it writes to them or autograd cannot keep them."""
    # autograd keeps no tensor that was made under `torch.inference_mode`
    return rows.clone() if is_written or (trains and rows.is_inference()) else rows


def detach_result(result: torch.Tensor, shared: AbstractSet[int]) -> torch.Tensor:
    """Return a result that nothing else will write to: a copy where it is a view of a weight, buffer or input.

    `shared` are the addresses of their memory.
    """
    result = result.detach()
    return result.clone() if result.untyped_storage().data_ptr() in shared else result


def make_synthetic_inputs(like: Sequence[torch.Tensor], kind: str) -> List[torch.Tensor]:
    """Return tensors of the same shapes and types; `kind` is "zeros", "normal" or "uniform" (between -1 and 1).

    Integers and bools are zero, which is a valid index. The same numbers come each time.
    """
    # a generator of its own, so that measuring does not move the host's random stream
    generator = torch.Generator().manual_seed(0)
    made = [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in like]
    # zero is a valid label, token and mask, whatever their range
    for tensor in made:
        if tensor.is_floating_point() and kind == "normal":
            tensor.normal_(generator=generator)
        elif tensor.is_floating_point() and kind == "uniform":
            tensor.uniform_(-1.0, 1.0, generator=generator)
    return made


# -- gradients over processes ------------------------------------------------------------------------------------------

# Adds the gradients of the other processes to the given ones, in place; every process passes the same shapes in the
# same order.
GradientExchange = Callable[[Sequence[torch.Tensor]], None]

# Large enough for the start of an exchange to cost little beside its bytes, and small enough for a copy to take little
# memory.
_MESSAGE_BYTES = 32 * 2**20


def sum_over_processes(gradients: Sequence[torch.Tensor]) -> None:
    """Add up `gradients`, all of one type, over torch's default process group, in place.

    They travel in messages of about 32 MiB, so that many small ones cost one exchange.
    """
    buckets: List[List[torch.Tensor]] = []
    num_bytes = _MESSAGE_BYTES
    for gradient in gradients:
        if num_bytes >= _MESSAGE_BYTES:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(gradient)
        num_bytes += gradient.numel() * gradient.element_size()
    for bucket in buckets:
        # A copy there and back is cheap beside one exchange for each of many small gradients.
        message = torch.cat([gradient.reshape(-1) for gradient in bucket])
        torch.distributed.all_reduce(message)
        parts = message.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts):
            gradient.copy_(part.view(gradient.shape))
