"""Several micro-batches of a call in one run of the graph, where the graph shows that this changes no result.

Micro-batches see the same weights and nothing of each other, unless an operator writes to a weight or buffer or draws
random numbers. Otherwise the graph may run on several of them at once, mapped over them by `torch.func.vmap`, whose
rules keep each to itself: a loss stays the mean of its own micro-batch, a normalisation sees its own rows. Only the
order in which sums are rounded is another.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple

import torch

from ..capture import StepGraph
from ..capture.device_operators import device_operator
from .call_plan import CallPlan, Turn
from .device_state import DeviceState

__all__ = ["BatchedTurns", "turns_at_once"]

# What the micro-batches of one run compute in between stays in the caches of a processor.
_MAX_BYTES = 4 << 20
_MAX_TURNS = 256

_Schedule = Tuple[Tuple[Tuple[Turn, ...], ...], ...]


def turns_at_once(graph: StepGraph) -> int:
    """Return how many micro-batches of `graph` are worth running at once; 1 where that would change results.

    The more a single micro-batch computes, the less is to be gained: as many run at once as keep their intermediate
    results within 4 MiB.

    >>> from porting.capture import capture_step
    >>> turns_at_once(capture_step(torch.nn.Linear(4, 2), [torch.ones(8, 4)], mode="inference"))
    256
    >>> turns_at_once(capture_step(torch.nn.Dropout(), [torch.ones(8, 4)], mode="inference"))
    1
    """
    if graph.is_random or graph.mutated_buffers or graph.mutated_parameters:
        return 1
    if any(not graph.inputs[index].shape for index in graph.mutated_inputs):
        return 1  # an input without rows keeps what is written to it from one micro-batch to the next
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    if not all(_keeps_to_itself(node.target) for node in nodes):
        return 1
    if any(_is_half(node.meta.get("val")) for node in nodes):
        return 1  # half precision is coarse enough for the order of summation to show
    num_bytes = _num_bytes(nodes) or 1
    return max(1, min(_MAX_TURNS, _MAX_BYTES // num_bytes))


class BatchedTurns:
    """Runs `function`, which computes `graph`, on several micro-batches at once, and says which.

    An operator may have no rule for being mapped. The first run finds out: from then on everything runs by itself.
    """

    def __init__(
        self, graph: StepGraph, function: Callable[..., Tuple[torch.Tensor, ...]], *, is_watched: bool
    ) -> None:
        """Look at the operators of `graph`; `is_watched` says that somebody looks at single micro-batches."""
        self.most = 1 if is_watched else turns_at_once(graph)
        self._trains = graph.has_loss and graph.loss_has_gradient
        self._function = function
        self._mapped: Optional[Callable[..., Tuple[torch.Tensor, ...]]] = None
        self._written_inputs = frozenset(graph.mutated_inputs)
        returned = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        self._patterns = [node.meta["val"] for node in returned]
        self._schedule: Optional[Tuple[CallPlan, int, _Schedule]] = None

    def schedule(self, plan: CallPlan, state: DeviceState) -> _Schedule:
        """Return the runs of each optimizer step of a call, or of the whole call in inference."""
        most = 1 if plan.checks_floats or state.groups or plan.num_slices == 1 else self.most
        if self._schedule is None or self._schedule[0] is not plan or self._schedule[1] != most:
            steps = plan.steps if self._trains else (tuple(turn for turns in plan.steps for turn in turns),)
            runs = tuple(tuple(turns[first : first + most] for first in range(0, len(turns), most)) for turns in steps)
            self._schedule = (plan, most, runs)
        return self._schedule[2]

    def run(
        self, state: DeviceState, inputs: Sequence[torch.Tensor], turns: Sequence[Turn], plan: CallPlan
    ) -> Optional[Tuple[List[torch.Tensor], List[torch.Tensor]]]:
        """Return the results of `turns` and the rows that they worked on, each with the turns as first dimension.

        Returns None if it cannot be done, which `most` says from then on.
        """
        rows = [self._rows(index, tensor, turns, plan) for index, tensor in enumerate(inputs)]
        arguments = state.arguments(turns[0].replica)
        if self._mapped is not None:
            return list(self._mapped(*arguments, *rows, *state.constants)), rows
        along_turns = [0 if tensor.dim() else None for tensor in inputs]
        in_dims = (*(None for _ in arguments), *along_turns, *(None for _ in state.constants))
        mapped = torch.func.vmap(self._function, in_dims=in_dims)
        try:
            with _only_mapped_operators():
                results = mapped(*arguments, *rows, *state.constants)
        except Exception:  # whatever it is, the user sees it when the micro-batch runs by itself
            results = ()
        if not self._are_as_captured(results):
            self.most = 1
            return None
        self._mapped = mapped
        return list(results), rows

    def _are_as_captured(self, results: Sequence[torch.Tensor]) -> bool:
        return len(results) == len(self._patterns) and all(
            result.shape[1:] == pattern.shape and result.dtype == pattern.dtype
            for result, pattern in zip(results, self._patterns)
        )

    def _rows(self, index: int, tensor: torch.Tensor, turns: Sequence[Turn], plan: CallPlan) -> torch.Tensor:
        """Cut out the rows of `turns`, [turn, row, ...]; a copy where the graph writes to them.

        An input without dimensions is the same for all of them.
        """
        if tensor.dim() == 0:
            return tensor
        slices = tensor.view(plan.num_slices, -1, *tensor.shape[1:])
        first = turns[0].position
        if all(turn.position == first + number for number, turn in enumerate(turns)):
            rows = slices.narrow(0, first, len(turns))
            is_shared = index in self._written_inputs or (self._trains and tensor.is_inference())
            return rows.clone() if is_shared else rows
        return slices[[turn.position for turn in turns]]


@contextmanager
def _only_mapped_operators() -> Iterator[None]:
    """Make operators that torch could only run one by one an error."""
    functorch: Any = torch._C._functorch
    before = functorch._is_vmap_fallback_enabled()
    functorch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        functorch._set_vmap_fallback_enabled(before)


def _keeps_to_itself(target: Any) -> bool:
    """Tell whether an operator only computes: those of the device may print, call the host, or loop."""
    if target is operator.getitem:
        return True
    if not isinstance(target, torch._ops.OpOverload):
        return False
    special = device_operator(target)
    return target.namespace == "aten" if special is None else special.is_pure


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype == torch.float16


def _num_bytes(nodes: Sequence[torch.fx.Node]) -> int:
    """Return the bytes of all memory that the operators fill; views of the same count once."""
    seen: Set[int] = set()
    total = 0
    for node in nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in seen:
            seen.add(value.untyped_storage()._cdata)
            total += value.numel() * value.element_size()
    return total
