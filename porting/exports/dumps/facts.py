"""Gathers the facts of each operator of a step: results, bytes, operations, place; and of the step as a whole."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch

from ...capture import StepGraph, TensorInfo
from ...capture.graph_flow import output_nodes, tensor_memory
from ...capture.plain_values import dtype_name
from ...capture.subgraphs import bodies_of
from ...diagnostics import Place
from ...engines.recompute.costs import cost_of
from ...engines.recompute.flop_counts import node_flops
from ...engines.recompute.recomputation import ComputationOrder, order_computation
from ..exported_step import ExportedStep

__all__ = ["OperatorFacts", "StepFacts", "TensorFacts", "facts_of", "tensor_text"]


@dataclass(frozen=True)
class TensorFacts:
    """A tensor of the graph: the name of its value, shape, type and the bytes of its elements."""

    name: str
    shape: Tuple[int, ...]
    dtype: str
    num_bytes: int
    kind: str = "value"


@dataclass(frozen=True)
class OperatorFacts:
    """An operator: what it reads and makes, the memory it fills anew, and what it computes.

    `inputs` are the names of the values that it reads. `bodies` are the operators of a segment, loop or branch.
    """

    name: str
    operator: str
    inputs: Tuple[str, ...]
    outputs: Tuple[TensorFacts, ...]
    new_bytes: int
    flops: int
    module: str
    place: Optional[Place]
    bodies: Tuple[Tuple[OperatorFacts, ...], ...] = ()


@dataclass(frozen=True)
class StepFacts:
    """A step: what enters it, its operators, what it returns, and the sums over all.

    `forward_peak_bytes` counts values of the forward pass that are still to be read, if each is freed after its last
    use; `kept_bytes` are what waits for the backward pass, None where that cannot be predicted.
    """

    title: str
    entering: Tuple[TensorFacts, ...]
    operators: Tuple[OperatorFacts, ...]
    returned: Tuple[str, ...]
    forward_flops: int
    forward_peak_bytes: int
    kept_bytes: Optional[int]
    recomputed_flops: Optional[int]

    @property
    def state_bytes(self) -> int:
        """The bytes of parameters and buffers."""
        return sum(tensor.num_bytes for tensor in self.entering if tensor.kind in ("parameter", "buffer"))


def facts_of(step: ExportedStep) -> StepFacts:
    """Gather the facts of `step` in its computation order."""
    graph = order_computation(step.graph, ComputationOrder.of(step.computation_order))
    operators = tuple(_describe_operators(graph.graph.nodes))
    kept, recomputed = _predict_costs(graph, step)
    return StepFacts(
        title=f"{graph.mode} step{f' of {step.target}' if step.target else ''}, {step.batch}",
        entering=tuple(map(_describe_entering, graph.entering, graph.placeholders)),
        operators=operators,
        returned=tuple(node.name for node in output_nodes(graph.graph)),
        forward_flops=sum(item.flops for item in operators),
        forward_peak_bytes=_count_peak_bytes(graph),
        kept_bytes=kept,
        recomputed_flops=recomputed,
    )


def tensor_text(tensor: TensorFacts) -> str:
    """Write type and shape, as in `float32[8, 2]`.

    >>> tensor_text(TensorFacts("x", (8, 2), "float32", 64))
    'float32[8, 2]'
    """
    return f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"


def _describe_entering(info: TensorInfo, node: torch.fx.Node) -> TensorFacts:
    own = _describe_tensor(node.name, node.meta["val"])
    return TensorFacts(own.name, own.shape, own.dtype, own.num_bytes, info.kind)


def _describe_operators(nodes: Iterable[torch.fx.Node]) -> Iterator[OperatorFacts]:
    filled = set()
    for node in nodes:
        if node.op == "placeholder":
            filled.add(tensor_memory(node))
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        # an operator with several results has them in the nodes that unpack it
        results = [node] if isinstance(node.meta.get("val"), torch.Tensor) else _find_results(node)
        fresh = {tensor_memory(result): result.meta["val"] for result in results if tensor_memory(result) not in filled}
        filled.update(fresh)
        yield OperatorFacts(
            name=node.name,
            operator=node.meta.get("operator", None) or _name_operator(node),
            inputs=tuple(dict.fromkeys(used.name for used in node.all_input_nodes)),
            outputs=tuple(_describe_tensor(result.name, result.meta["val"]) for result in results),
            new_bytes=sum(value.untyped_storage().nbytes() for value in fresh.values()),
            flops=node_flops(node),
            module=node.meta.get("module_path", ""),
            place=node.meta.get("place"),
            bodies=tuple(tuple(_describe_operators(body.graph.nodes)) for body in bodies_of(node)),
        )


def _find_results(node: torch.fx.Node) -> List[torch.fx.Node]:
    parts = [user for user in node.users if user.target is operator.getitem]
    return [part for part in parts if isinstance(part.meta.get("val"), torch.Tensor)]


def _name_operator(node: torch.fx.Node) -> str:
    target: Any = node.target
    return str(target) if isinstance(target, torch._ops.OpOverload) else str(target.__name__)


def _describe_tensor(name: str, value: torch.Tensor) -> TensorFacts:
    return TensorFacts(name, tuple(value.shape), dtype_name(value.dtype), value.numel() * value.element_size())


def _count_peak_bytes(graph: StepGraph) -> int:
    """Walk through the forward pass and count references to memory; what enters the graph is not counted."""
    nodes = list(graph.graph.nodes)
    entering = {tensor_memory(node) for node in graph.placeholders}
    last_use: Dict[int, int] = {}
    for position, node in enumerate(nodes):
        for used in (node, *node.all_input_nodes):
            last_use[tensor_memory(used)] = position
    alive: Dict[int, int] = {}
    peak = 0
    for position, node in enumerate(nodes):
        memory, value = tensor_memory(node), node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and memory not in entering:
            alive[memory] = value.untyped_storage().nbytes()
        peak = max(peak, sum(alive.values()))
        alive = {memory: size for memory, size in alive.items() if last_use[memory] > position}
    return peak


def _predict_costs(graph: StepGraph, step: ExportedStep) -> Tuple[Optional[int], Optional[int]]:
    if not graph.has_loss:
        return 0, 0
    try:
        cost = cost_of(graph, step.computation_order, plain=step.graph)
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None, None  # an operator that reads values, such as a branch, has no prediction
    return cost.kept_bytes, cost.recomputed_flops
