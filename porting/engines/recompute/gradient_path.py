"""Find the values that back-propagation visits on its way from the loss to the trainable parameters."""

from __future__ import annotations

from typing import List, Set

import torch

from ...capture import StepGraph
from ...capture.graph_flow import ValueFlow, output_nodes, tensor_memories, written_nodes

__all__ = ["nodes_after_parameters", "nodes_with_gradient", "trained_parameters"]


def trained_parameters(graph: StepGraph) -> List[str]:
    """Return the names of the parameters that get a gradient."""
    reached = nodes_with_gradient(graph)
    return [info.name for info, node in zip(graph.parameters, graph.placeholders) if node in reached]


def nodes_with_gradient(graph: StepGraph) -> Set[torch.fx.Node]:
    """Return the nodes between the final loss and the trainable parameters; none for a graph without a loss."""
    if not graph.has_loss:
        return set()
    return _follow_back_from_loss(graph, nodes_after_parameters(graph))


def nodes_after_parameters(graph: StepGraph) -> Set[torch.fx.Node]:
    """Return the trainable parameters and the nodes that autograd tracks back to them."""
    return set(ValueFlow.follow(graph).with_gradient)


def _follow_back_from_loss(graph: StepGraph, tracked: Set[torch.fx.Node]) -> Set[torch.fx.Node]:
    """Return those of `tracked`, which autograd keeps track of, that lead to the loss by way of each other."""
    # The last output is the loss that the step ends in.
    loss = output_nodes(graph.graph)[-1]
    found, memory = tracked & {loss}, tensor_memories([loss])
    for node in reversed(graph.graph.nodes):
        # A write in place leads to the loss if a later reader of that memory does.
        leads = node in found or not memory.isdisjoint(tensor_memories(written_nodes(node)))
        if leads and node in tracked and node.op == "call_function":
            found.add(node)
            found.update(tracked.intersection(node.all_input_nodes))
            memory.update(tensor_memories(node.all_input_nodes))
    return found
