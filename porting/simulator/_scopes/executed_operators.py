"""List the nodes that the device executes: no constants, no marks, no casts to types that only the host has.

Checks, names and listings of the graph use it.
"""

from __future__ import annotations

import operator
from typing import List

import torch
from torch.fx.node import map_arg

from ...capture.dtypes import NARROWED
from ...capture.graph_flow import ValueFlow
from ...capture.subgraphs import bodies_of
from ...torch_insides.operators import SET_GRAD_ENABLED, OpOverload

__all__ = ["is_convolution", "is_mark", "label_operator", "list_executed_operators", "list_operands", "list_results"]

# Marks on tensors that the compiler removes: their content becomes settings of other operators.
_MARKS = frozenset(
    ["set_available_memory", "set_matmul_serialization", "set_overlap_for_input", "set_overlap_for_output"]
)
_CONVOLUTIONS = frozenset(
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution".split()
)


def list_executed_operators(graph: torch.fx.Graph, *, with_bodies: bool = False) -> List[torch.fx.Node]:
    """Return the nodes of the operators that the device executes, in order; `with_bodies` also those inside loops."""
    flow = ValueFlow()
    executed = []
    for node in graph.nodes:
        flow.visit(node)
        if node.op != "call_function" or node.target in (SET_GRAD_ENABLED, operator.getitem):
            continue
        if flow.is_constant(node) or is_mark(node) or _narrows_result(node) or _widens_operand(node):
            continue
        executed.append(node)
        for body in bodies_of(node) if with_bodies else ():
            executed.extend(list_executed_operators(body.graph, with_bodies=True))
    return executed


def label_operator(node: torch.fx.Node) -> str:
    """Return the name of the operator of `node` without namespace and overload."""
    if isinstance(node.target, OpOverload):
        return str(node.target.overloadpacket.__name__)
    return str(node.meta.get("operator") or getattr(node.target, "__name__", node.target))


def is_convolution(node: torch.fx.Node) -> bool:
    """Tell whether `node` is a convolution."""
    return label_operator(node) in _CONVOLUTIONS


def list_operands(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return the nodes whose tensors `node` reads, as the device has them; one that is given twice is listed twice."""
    operands: List[torch.fx.Node] = []
    # `all_input_nodes` has each node once
    map_arg((node.args, node.kwargs), operands.append)
    for position, operand in enumerate(operands):
        while is_mark(operand) or _widens_operand(operand):
            operand = operand.all_input_nodes[0]
        operands[position] = operand
    return operands


def is_mark(node: torch.fx.Node) -> bool:
    """Tell whether `node` only marks how others are compiled."""
    return node.op == "call_function" and label_operator(node) in _MARKS


def list_results(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return the nodes of the results of `node`, as the device has them."""
    # several results are taken apart first, and each of them may be cast to the device's type then
    parts = [user for user in node.users if user.target is operator.getitem] or [node]
    return [next((user for user in part.users if _narrows_result(user)), part) for part in parts]


def _narrows_result(node: torch.fx.Node) -> bool:
    """Tell whether `node` turns a result of the host's kernel into the device's type."""
    return node.target is torch.ops.aten.to.dtype and _is_narrowed(node.all_input_nodes[0])


def _widens_operand(node: torch.fx.Node) -> bool:
    """Tell whether `node` turns the device's type into that of the host's kernel."""
    return node.target is torch.ops.aten.to.dtype and _is_narrowed(node)


def _is_narrowed(node: torch.fx.Node) -> bool:
    """Tell whether the value of `node` has a type that only the host has."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in NARROWED
