"""Which values back-propagation visits on its way from the loss to the trainable parameters."""

from __future__ import annotations

from typing import List, Set

import torch

from ..capture import StepGraph
from ._executed_operators import operator_label, tensor_memory, written_nodes

__all__ = ["nodes_with_gradient", "trained_parameters"]


def trained_parameters(graph: StepGraph) -> List[str]:
    """Return the names of the parameters that get a gradient."""
    reached = nodes_with_gradient(graph)
    return [info.name for info, node in zip(graph.parameters, graph.placeholders) if node in reached]


def nodes_with_gradient(graph: StepGraph) -> Set[torch.fx.Node]:
    """Return the nodes between the final loss and the trainable parameters; none for a graph without a loss."""
    if not graph.has_loss:
        return set()
    return _before_loss(graph, _after_parameters(graph))


def _after_parameters(graph: StepGraph) -> Set[torch.fx.Node]:
    found = {node for info, node in zip(graph.parameters, graph.placeholders) if info.requires_grad}
    memory: Set[int] = set()
    is_enabled = True
    for node in graph.graph.nodes:
        if node.target is torch._C._set_grad_enabled:
            is_enabled = bool(node.args[0])
        elif node.op == "call_function" and is_enabled and operator_label(node) != "detach":
            if any(used in found or tensor_memory(used) in memory for used in node.all_input_nodes):
                found.add(node)
                memory.update(tensor_memory(item) for item in written_nodes(node))
                memory.discard(-1)
    return found


def _before_loss(graph: StepGraph, tracked: Set[torch.fx.Node]) -> Set[torch.fx.Node]:
    """Return those of `tracked`, which autograd keeps track of, that lead to the loss by way of each other."""
    output = next(node for node in graph.graph.nodes if node.op == "output")
    loss = output.args[0][-1]
    found, memory = tracked & {loss}, {tensor_memory(loss)} - {-1}
    for node in reversed(graph.graph.nodes):
        leads = node in found or any(tensor_memory(item) in memory for item in written_nodes(node))
        if leads and node in tracked and node.op == "call_function":
            found.add(node)
            found.update(tracked.intersection(node.all_input_nodes))
            memory.update(tensor_memory(item) for item in node.all_input_nodes)
            memory.discard(-1)
    return found
