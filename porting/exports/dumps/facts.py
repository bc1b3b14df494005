"""A step as plain data: what enters it, its operators with results, bytes and operations, and sums over all.

This is the content of the dump as JSON, of which text and drawing show the same.
"""

from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Dict, Iterable, Iterator, Optional

import torch

from ...capture import StepGraph
from ...capture.graph_flow import output_nodes, tensor_memory
from ...capture.plain_values import dtype_name
from ...capture.subgraphs import bodies_of
from ...engines.recompute.costs import predict_cost
from ...engines.recompute.flop_counts import count_node_flops
from ...engines.recompute.recomputation import ComputationOrder, order_computation
from ...executables.exported_step import ExportedStep

__all__ = ["SCHEMA", "Facts", "as_json", "describe_step", "format_tensor"]

SCHEMA = "porting.graph/1"
"""What the key `schema` says."""

Facts = Dict[str, Any]
"""Plain values by name: a step, an operator or a tensor."""


def as_json(step: ExportedStep) -> bytes:
    """Write what `describe_step` returns."""
    return (json.dumps(describe_step(step), indent=1) + "\n").encode()


def describe_step(step: ExportedStep) -> Facts:
    """Describe the graph of `step` in its computation order.

    Keys: `schema`, `title`, `mode`, `batch`, `precision`, `computation_order`, `entering` (tensors with a `kind`),
    `operators` (in the order they run; `inputs` and `outputs` name values, `new_bytes` is the memory that is filled
    anew, `bodies` are lists of operators of a segment, loop or branch), `returned`, `sums`.

    Of the sums, `forward_peak_bytes` counts values of the forward pass that are still to be read, if each is freed
    after its last use; `kept_bytes` are what waits for the backward pass, None where that cannot be predicted.
    """
    graph = order_computation(step.graph, ComputationOrder.of(step.computation_order))
    operators = list(_describe_operators(graph.graph.nodes))
    entering = [
        {**_describe_tensor(node.name, node.meta["val"]), "kind": info.kind}
        for info, node in zip(graph.entering, graph.placeholders)
    ]
    kept: Optional[int] = 0
    recomputed: Optional[int] = 0
    if graph.has_loss:
        try:
            cost = predict_cost(graph, step.computation_order, plain=step.graph)
            kept, recomputed = cost.kept_bytes, cost.recomputed_flops
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            kept = recomputed = None  # an operator that reads values, such as a branch, has no prediction
    return {
        "schema": SCHEMA,
        "title": f"{graph.mode} step{f' of {step.target}' if step.target else ''}, {step.batch}",
        "mode": step.graph.mode,
        "batch": dataclasses.asdict(step.batch),
        "precision": step.precision,
        "computation_order": step.computation_order,
        "entering": entering,
        "operators": operators,
        "returned": [node.name for node in output_nodes(graph.graph)],
        "sums": {
            "forward_flops": sum(item["flops"] for item in operators),
            "forward_peak_bytes": _count_peak_bytes(graph),
            "kept_bytes": kept,
            "recomputed_flops": recomputed,
            "state_bytes": sum(tensor["bytes"] for tensor in entering if tensor["kind"] in ("parameter", "buffer")),
        },
    }


def format_tensor(tensor: Facts) -> str:
    """Write type and shape, as in `float32[8, 2]`.

    >>> format_tensor({"name": "x", "shape": [8, 2], "dtype": "float32", "bytes": 64})
    'float32[8, 2]'
    """
    return f"{tensor['dtype']}[{', '.join(map(str, tensor['shape']))}]"


def _describe_tensor(name: str, value: torch.Tensor) -> Facts:
    num_bytes = value.numel() * value.element_size()
    return {"name": name, "shape": list(value.shape), "dtype": dtype_name(value.dtype), "bytes": num_bytes}


def _describe_operators(nodes: Iterable[torch.fx.Node]) -> Iterator[Facts]:
    filled = set()
    for node in nodes:
        if node.op == "placeholder":
            filled.add(tensor_memory(node))
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        # an operator with several results has them in the nodes that unpack it
        parts = [node, *(user for user in node.users if user.target is operator.getitem)]
        results = [part for part in parts if isinstance(part.meta.get("val"), torch.Tensor)]
        results = results[:1] if results[:1] == [node] else results
        fresh = {tensor_memory(result): result.meta["val"] for result in results if tensor_memory(result) not in filled}
        filled.update(fresh)
        target: Any = node.target
        name = str(target) if isinstance(target, torch._ops.OpOverload) else str(target.__name__)
        place = node.meta.get("place")
        yield {
            "name": node.name,
            "operator": node.meta.get("operator", None) or name,
            "inputs": list(dict.fromkeys(used.name for used in node.all_input_nodes)),
            "outputs": [_describe_tensor(result.name, result.meta["val"]) for result in results],
            "new_bytes": sum(value.untyped_storage().nbytes() for value in fresh.values()),
            "flops": count_node_flops(node),
            "module": node.meta.get("module_path", ""),
            "place": None if place is None else dataclasses.asdict(place),
            "bodies": [list(_describe_operators(body.graph.nodes)) for body in bodies_of(node)],
        }


def _count_peak_bytes(graph: StepGraph) -> int:
    """Walk through the forward pass and count references to memory; what enters the graph is not counted."""
    nodes = list(graph.graph.nodes)
    entering = {tensor_memory(node) for node in graph.placeholders}
    last_use = {tensor_memory(used): at for at, node in enumerate(nodes) for used in (node, *node.all_input_nodes)}
    alive: Dict[int, int] = {}
    peak = 0
    for position, node in enumerate(nodes):
        memory, value = tensor_memory(node), node.meta.get("val")
        if node.op == "call_function" and isinstance(value, torch.Tensor) and memory not in entering:
            alive[memory] = value.untyped_storage().nbytes()
        peak = max(peak, sum(alive.values()))
        alive = {memory: size for memory, size in alive.items() if last_use[memory] > position}
    return peak
