"""The costs of a computation order: bytes that wait for the backward pass, and operations that are made twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import (
    AbstractSet,
    Any,
    Callable,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Union,
)

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ...capture import StepGraph
from ...capture.graph_flow import identify_memory
from ...options import ComputationOrder
from ...torch_insides.fake_tensors import FakeTensorMode
from ...torch_insides.modes import DisableTorchFunction, TorchDispatchMode
from ...torch_insides.trees import tree_leaves
from ..replay.graph_function import GraphFunction
from ..replay.wide_operators import find_wide_call
from .flop_counts import count_flops
from .recomputation import order_computation, run_segment

__all__ = ["OrderCost", "format_costs", "predict_cost", "predict_costs"]


@dataclass(frozen=True)
class OrderCost:
    """What one micro-batch costs under a computation order.

    `kept_bytes` wait for the backward pass, and `peak_bytes` is the most memory that forward and backward pass have in
    use at any time, both apart from weights, buffers, inputs and constants. `forward_flops` are those of the forward
    pass alone, `recomputed_flops` those of it that the backward pass makes again, by torch's formulas (products of
    matrices, convolutions, attention).
    """

    order: str
    num_segments: int
    kept_bytes: int
    peak_bytes: int
    forward_flops: int
    recomputed_flops: int

    @property
    def recomputed_share(self) -> float:
        """Recomputed operations for each of the forward pass."""
        return self.recomputed_flops / self.forward_flops if self.forward_flops else 0.0


def predict_costs(graph: StepGraph, orders: Iterable[str]) -> List[OrderCost]:
    """Predict the costs of several computation orders of a step, none of which it has yet."""
    trial = _run_trial(graph)
    return [predict_cost(order_computation(graph, ComputationOrder.of(text)), text, plain=trial) for text in orders]


def predict_cost(graph: StepGraph, order: str, *, plain: Union[StepGraph, _Trial]) -> OrderCost:
    """Predict what `graph` costs, which has the order already; `plain` is the step without one, or its trial."""
    trial, without = _run_trial(graph), _run_trial(plain) if isinstance(plain, StepGraph) else plain
    num_segments = sum(node.target is run_segment for node in graph.graph.nodes)
    recomputed = trial.flops - without.flops
    return OrderCost(order, num_segments, trial.kept_bytes, trial.peak_bytes, without.forward_flops, recomputed)


def format_costs(costs: Sequence[OrderCost]) -> str:
    """Lay costs out as a table.

    >>> print(format_costs([OrderCost("none", 0, 3 << 20, 5 << 20, 2_000_000, 0)]))
    order    segments  kept MB  peak MB  recomputed GFLOP  of forward
    none            0     3.00     5.00            0.0000        0.0%
    """
    width = max([8, *(len(cost.order) for cost in costs)])
    lines = [f"{'order':{width}} segments  kept MB  peak MB  recomputed GFLOP  of forward"]
    lines += [
        f"{cost.order:{width}} {cost.num_segments:8}  {cost.kept_bytes / 2**20:7.2f}  {cost.peak_bytes / 2**20:7.2f}  "
        f"{cost.recomputed_flops / 1e9:16.4f}  {cost.recomputed_share:9.1%}"
        for cost in costs
    ]
    return "\n".join(lines)


class _Trial(NamedTuple):
    kept_bytes: int
    peak_bytes: int
    forward_flops: int
    flops: int


def _run_trial(graph: StepGraph) -> _Trial:
    """Run forward and backward on tensors without values, and see what autograd keeps."""
    function = GraphFunction(graph.graph, find_call=find_wide_call).call
    # Fake tensors have storages with sizes and lifetimes, and no memory: a step of many gigabytes is looked at on a
    # laptop.
    with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), DisableTorchFunction():
        trained = {info.name for info in graph.parameters if info.requires_grad and graph.mode == "training"}
        arguments = []
        for node in graph.placeholders:
            pattern = node.meta["val"]
            is_trained = node.meta["kind"] == "parameter" and node.meta.get("state_name") in trained
            tensor = torch.empty_strided(pattern.shape, pattern.stride(), dtype=pattern.dtype)
            arguments.append(tensor.requires_grad_(is_trained))
        entering = {identify_memory(tensor) for tensor in arguments}
        saved: Dict[int, torch.Tensor] = {}

        # Autograd calls this for each tensor that it keeps; one memory counts once, whatever looks at it.
        def note(tensor: torch.Tensor) -> torch.Tensor:
            if identify_memory(tensor) not in entering:
                saved.setdefault(identify_memory(tensor), tensor)
            return tensor

        with count_flops() as counter, _MemoryInUse(entering) as memory:
            with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
                results = function(*arguments)
            kept_bytes = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
            # else the notes would keep alive what the backward pass frees
            saved.clear()
            forward_flops = counter.get_total_flops()
            if graph.has_loss and graph.loss_has_gradient:
                torch.autograd.backward(results[-1].sum())
        return _Trial(kept_bytes, memory.peak_bytes, forward_flops, counter.get_total_flops())


class _MemoryInUse(TorchDispatchMode):
    """Adds up the memory of all tensors alive that operators have made, and keeps the largest sum."""

    def __init__(self, entering: AbstractSet[int]) -> None:
        super().__init__()
        self.peak_bytes = 0
        self._entering = entering
        self._alive: Dict[int, Tuple[Any, int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run the operator and look at its results."""
        results = func(*args, **(kwargs or {}))
        for value in tree_leaves(results):
            if isinstance(value, torch.Tensor) and identify_memory(value) not in self._entering:
                storage = value.untyped_storage()
                self._alive[identify_memory(value)] = (StorageWeakRef(storage), storage.nbytes())
        # Weak references: a storage has expired once nothing looks at it, which is when a program frees it.
        self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self._alive.values()))
        return results
