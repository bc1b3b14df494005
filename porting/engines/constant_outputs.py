"""Which outputs of a graph are the same for every micro-batch: those made of compile-time constants alone."""

from __future__ import annotations

import operator
from typing import Any, FrozenSet, Set

import torch

from ..capture import StepGraph
from ..capture.operator_schema import written_arguments

__all__ = ["constant_outputs"]


def constant_outputs(graph: StepGraph) -> FrozenSet[int]:
    """Return the indices of the outputs that depend on no parameter, buffer, input or random number."""
    num_constants = len(graph.constants)
    placeholders = graph.placeholders
    varying: Set[torch.fx.Node] = set(placeholders[: len(placeholders) - num_constants])
    memory = {_memory(node) for node in varying}
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            _follow(node, varying, memory)
        elif node.target is operator.getitem:
            varying.update([node] if node.args[0] in varying else [])
        elif node.op == "call_function":
            varying.add(node)  # loops, branches and calls of the host may do anything
    returned = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    return frozenset(
        index
        for index, node in enumerate(returned[: len(graph.outputs)])
        if node not in varying and _memory(node) not in memory
    )


def _follow(node: torch.fx.Node, varying: Set[torch.fx.Node], memory: Set[int]) -> None:
    """Note in `varying` and `memory` what an operator makes of values that vary."""
    overload: Any = node.target
    is_random = torch.Tag.nondeterministic_seeded in overload.tags
    if not is_random and not any(used in varying or _memory(used) in memory for used in node.all_input_nodes):
        return
    varying.add(node)
    for target in written_arguments(overload, node.args, node.kwargs):
        if isinstance(target, torch.fx.Node):
            memory.add(_memory(target))
    memory.discard(0)


def _memory(node: torch.fx.Node) -> int:
    """Identify the memory of a node's value; 0 for what is no tensor."""
    value = node.meta.get("val")
    return int(value.untyped_storage()._cdata) if isinstance(value, torch.Tensor) else 0
