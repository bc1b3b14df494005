"""Compare the operators of a captured step with the device's: some are missing, refused in this form, or partial.

The simulator, preflights and the step checks use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Collection, FrozenSet, Iterator, Optional, Set

import torch
from torch import nn

from ..capture import StepGraph
from ..capture.graph_flow import ValueFlow, written_nodes
from ..capture.operator_schema import operator_name
from ..capture.subgraphs import bodies_of
from ..diagnostics import Finding
from ..torch_insides.operators import OpOverload, read_schema
from .operator_limits import LIMITS, PARTIAL, OperatorCall, check_write
from .operator_table import OperatorTable, read_function_table, read_operator_table

__all__ = [
    "EXPRESS_OTHERWISE",
    "RefusedCall",
    "collect_attention",
    "find_refused_call",
    "iter_calls",
    "iter_operator_faults",
]

EXPRESS_OTHERWISE = "express it with other operators, or compute it on the host outside `forward`"
"""What remains where no remedy is known."""


@dataclass(frozen=True)
class RefusedCall:
    """A call that the device refuses: it lacks the operator `name`, at all or in this form.

    `message` is PopTorch's message about the form; empty for a missing operator.
    """

    node: torch.fx.Node
    name: str
    message: str
    remedy: str
    in_ports: bool


def collect_attention(model: nn.Module) -> FrozenSet[str]:
    """Collect the modules of `model` that are torch's own attention, by name."""
    return frozenset(name for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention))


def iter_calls(graph: StepGraph) -> Iterator[OperatorCall]:
    """Yield the operators of `graph` in their order with their arguments, those of bodies after the loop."""
    flow = ValueFlow.of(graph)
    after_fault: Set[torch.fx.Node] = set()
    for node in _iter_nodes(graph.graph):
        flow.visit(node)
        is_refused = "is_refused" in node.meta
        if is_refused or (after_fault and not after_fault.isdisjoint(node.all_input_nodes)):
            after_fault.add(node)
        # a fault of the capture has been reported, and the operator stands for another one
        if isinstance(node.target, OpOverload) and not is_refused:
            yield _make_call(node, node.target, flow, follows_fault=node in after_fault)


def find_refused_call(call: OperatorCall, *, attention: Collection[str] = ()) -> Optional[RefusedCall]:
    """Return why the device refuses `call`, or None; `attention` names those of torch's own."""
    table = read_operator_table()
    node, name = call.node, operator_name(call.node.target)
    message = (check_write(call) if written_nodes(node) else None) or _find_refusal(call, table)
    if message:
        # what works in place is not exchanged
        in_ports = table.is_computed_in_ports(name, message) and not name.endswith("_")
        return RefusedCall(node, name, message, table.find_remedy(name, message) or EXPRESS_OTHERWISE, in_ports)
    lacking = _find_lacking(call, table)
    # torch's own attention unflattens a projection, which the device compiles as a view
    if lacking is None or (lacking == "unflatten" and node.meta.get("module_path") in attention):
        return None
    in_ports = table.is_computed_in_ports(lacking) and name != f"{lacking}_"
    return RefusedCall(node, lacking, "", table.find_remedy(lacking) or EXPRESS_OTHERWISE, in_ports)


def iter_operator_faults(graph: StepGraph, *, attention: Collection[str] = ()) -> Iterator[Finding]:
    """Yield C017 for each place of an operator that the device refuses, and C041 for one that it has in part."""
    table = read_operator_table()
    told = set()
    for call in iter_calls(graph):
        refused = find_refused_call(call, attention=attention)
        note = None if refused is not None else _find_restriction(call)
        name = refused.name if refused is not None else call.name
        key = (name, call.node.meta.get("place"))
        if key in told or (refused is None and note is None):
            continue
        told.add(key)
        path = call.node.meta.get("module_path", "")
        where = (f"the module is `{path}`",) if path else ()
        if refused is not None:
            yield Finding(
                "C017",
                message=f"the device has no `aten::{name}`"
                if not refused.message
                else f"the device does not have `aten::{name}` in this form: {refused.message}",
                place=call.node.meta.get("place"),
                label="the device cannot compute this" if not refused.message else "the device refuses this call",
                notes=(*where, f"the operators are those of {table.software}", *_quote_vendor(name)),
                help=refused.remedy,
            )
        else:
            yield Finding(
                "C041",
                message=f"the device has `aten::{name}` in part: {note}",
                place=call.node.meta.get("place"),
                notes=where,
                help="compare the port with plain PyTorch on an IPU: `porting.compare_training`",
            )


def _quote_vendor(name: str) -> Iterator[str]:
    """Quote the vendor's documents about an operator, by the name of its function, if they mention it."""
    functions = read_function_table()
    path = f"linalg.{name[7:]}" if name.startswith("linalg_") else name
    entries = [functions.get(f"{module}.{path}") for module in ("torch", "torch.nn.functional", "torch.Tensor")]
    yield from (f"the vendor says: {entry.note.rstrip('.')}" for entry in entries if entry is not None and entry.note)


def _iter_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the nodes of `graph` in their order, those in the bodies of a loop or branch after it."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from _iter_nodes(body.graph)


def _make_call(node: torch.fx.Node, operator: OpOverload, flow: ValueFlow, *, follows_fault: bool) -> OperatorCall:
    arguments = {argument.name: argument.default_value for argument in read_schema(operator).arguments}
    arguments.update({**dict(zip(list(arguments), node.args)), **node.kwargs})

    def is_constant(argument: object) -> bool:
        return not isinstance(argument, torch.fx.Node) or flow.is_constant(argument)

    return OperatorCall(node, operator_name(operator), arguments, is_constant, flow.has_gradient(node), follows_fault)


def _find_restriction(call: OperatorCall) -> Optional[str]:
    return PARTIAL[call.name](call) if call.name in PARTIAL else None


def _find_refusal(call: OperatorCall, table: OperatorTable) -> Optional[str]:
    """Return PopTorch's message if the device has the operator, but not in this form."""
    message = LIMITS[call.name](call) if call.name in LIMITS else None
    entry = table.operators.get(call.name)
    if message is None and entry is not None and not entry.gradient and call.needs_gradient:
        return f"aten::{call.name} is only supported in inference: the device has no gradient for it"
    value = call.node.meta.get("val")
    # in a capture that went on after a fault, an example may be empty
    if message is not None or not isinstance(value, torch.Tensor) or value.numel() > 0 or call.follows_fault:
        return message
    if not call.is_constant(call.node):
        return f"Zero-sized tensors are unsupported (Got shape {list(value.shape)})"
    return message


def _find_lacking(call: OperatorCall, table: OperatorTable) -> Optional[str]:
    """Return the name of the operator of `call` that the device lacks; constants are folded on the host."""
    # an in-place operator is lacking where its other form is; `__xor__` is no in-place operator
    name = call.name.rstrip("_") if not call.name.startswith("__") else call.name
    if call.is_constant(call.node):
        return None
    if table.is_lacking(name):
        return name
    if getattr(call.node.target, "_overloadname", "") == "padding" and name.startswith("conv"):
        return "_convolution_mode"
    if name == "pad" and call.arguments["mode"] == "circular":
        return "_pad_circular"
    if name == "pad" and call.arguments["mode"] == "reflect" and len(call.arguments["pad"]) > 4:
        return "reflection_pad3d"
    is_xor = name in ("bitwise_xor", "__xor__", "__ixor__")
    return "bitwise_xor" if is_xor and all(tensor.dtype == torch.bool for tensor in call.iter_tensors()) else None
