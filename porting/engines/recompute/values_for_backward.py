"""Copies of what back-propagation needs and `forward` writes over: on the device every write makes a new value.

PyTorch's autograd refuses such programs; with the copies it differentiates the values that were there. Buffers that
trained values are written to get those without their history, which ends with the micro-batch. And of views that torch
makes together each is made alone, which may be written to.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

import torch
from torch.fx.node import map_arg

from ...capture import StepGraph
from ...capture.graph_flow import ValueFlow, output_nodes, tensor_memories, tensor_memory, written_nodes
from ...capture.operator_schema import name_arguments, operator_name
from ...torch_insides.operators import OpOverload

__all__ = ["collect_nodes_with_gradient", "keep_values_for_backward", "list_trained_parameters"]

aten = torch.ops.aten

_SEVERAL_VIEWS = frozenset("split split_with_sizes chunk unbind tensor_split".split())
# Operators whose derivative is computed from their result.
_NEED_RESULT = frozenset(
    "relu sigmoid tanh exp exp2 expm1 sqrt rsqrt reciprocal tan softmax _softmax log_softmax _log_softmax logsumexp "
    "norm linalg_vector_norm linalg_norm linalg_matrix_norm pdist pairwise_distance prod cumprod logcumsumexp pow "
    "amax amin max min std erfinv cdist dist rnn_tanh rnn_relu gru lstm scaled_dot_product_attention".split()
)
# Those of them that compute it so only when they work in place.
_NEED_RESULT_IN_PLACE = _NEED_RESULT | frozenset("elu celu selu leaky_relu rrelu hardtanh threshold".split())
# Operators whose derivative needs no tensor that they get.
_NEED_NO_ARGUMENT = frozenset(
    "add sub rsub neg sum mean cat stack clone copy fill zero detach to _to_copy dropout "
    "relu sigmoid tanh exp exp2 expm1 sqrt rsqrt reciprocal tan softmax _softmax log_softmax _log_softmax".split()
)


def keep_values_for_backward(graph: StepGraph) -> StepGraph:
    """Return `graph`, or one that computes the same and copies what is written over before its gradient is computed."""
    # Without a backward pass nothing is needed later, and most graphs write nothing.
    nodes = enumerate(graph.graph.nodes if graph.has_loss else ())
    last_write = {
        memory: position for position, node in nodes for memory in tensor_memories(_list_declared_writes(node))
    }
    if not last_write:
        return graph
    needed = _list_needed(graph, last_write)
    buffers = _list_tracked_buffers(graph)
    views = [
        node
        for position, node in enumerate(graph.graph.nodes)
        if _find_operator(node) in _SEVERAL_VIEWS and last_write.get(tensor_memory(node.args[0]), -1) > position
    ]
    return _insert_copies(graph, needed, buffers, views) if needed or buffers or views else graph


def list_trained_parameters(graph: StepGraph) -> List[str]:
    """Return the names of the parameters that get a gradient."""
    reached = collect_nodes_with_gradient(graph)
    return [info.name for info, node in zip(graph.parameters, graph.placeholders) if node in reached]


def collect_nodes_with_gradient(graph: StepGraph) -> Set[torch.fx.Node]:
    """Return the nodes between the final loss and the trainable parameters; none for a graph without a loss."""
    if not graph.has_loss:
        return set()
    tracked, loss = set(ValueFlow.follow(graph).with_gradient), output_nodes(graph.graph)[-1]
    found, memory = {loss} & tracked, tensor_memories([loss])
    for node in reversed(graph.graph.nodes):
        # A write in place leads to the loss if a later reader of that memory does.
        leads = node in found or not memory.isdisjoint(tensor_memories(written_nodes(node)))
        if leads and node in tracked and node.op == "call_function":
            found.add(node)
            found.update(tracked.intersection(node.all_input_nodes))
            memory.update(tensor_memories(node.all_input_nodes))
    return found


def _list_declared_writes(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return the nodes that `node` writes to; autograd does not know of the statistics that a norm updates."""
    return [] if _find_operator(node) in ("batch_norm", "instance_norm") else written_nodes(node)


def _find_operator(node: torch.fx.Node) -> str:
    target: Any = node.target
    return operator_name(target) if isinstance(target, OpOverload) else ""


def _list_needed(graph: StepGraph, last_write: Dict[int, int]) -> List[Tuple[torch.fx.Node, List[torch.fx.Node], bool]]:
    """List the operators with the arguments that they need later, and whether they need their result."""
    on_path = collect_nodes_with_gradient(graph)
    found = []
    for position, node in enumerate(graph.graph.nodes):
        if node in on_path and node.op == "call_function":
            arguments = _list_lost_arguments(node, position, last_write) if _needs_arguments(node) else []
            name, needing = _find_operator(node), _NEED_RESULT
            if _list_declared_writes(node):
                name, needing = name.rstrip("_"), _NEED_RESULT_IN_PLACE
            needs_result = name in needing and last_write.get(tensor_memory(node), -1) > position
            if arguments or needs_result:
                found.append((node, arguments, needs_result))
    return found


def _list_lost_arguments(node: torch.fx.Node, position: int, last_write: Dict[int, int]) -> List[torch.fx.Node]:
    """List the arguments that `node` or a later operator writes over; what `node` says it writes to autograd keeps."""
    written = _list_declared_writes(node)
    # At its own position too: `x.mul_(x)` writes over what it needs.
    lost = (used for used in node.all_input_nodes if last_write.get(tensor_memory(used), -1) >= position)
    return [used for used in lost if used not in written or node.args.count(used) > 1]


def _needs_arguments(node: torch.fx.Node) -> bool:
    results = tensor_memories([node, *(user for user in node.users if user.target is operator.getitem)])
    if not _list_declared_writes(node) and results.intersection(map(tensor_memory, node.all_input_nodes)):
        return False  # a view: what is written through it must arrive
    return _find_operator(node).rstrip("_") not in _NEED_NO_ARGUMENT


def _list_tracked_buffers(graph: StepGraph) -> List[torch.fx.Node]:
    """List the buffers that autograd would track back to parameters once the graph has run."""
    first = len(graph.parameters)
    buffers = {tensor_memory(node): node for node in graph.placeholders[first : first + len(graph.buffers)]}
    tracked = ValueFlow.follow(graph).with_gradient if graph.mutated_buffers else ()
    memories = tensor_memories(item for node in tracked for item in _list_declared_writes(node))
    return [node for memory, node in buffers.items() if memory in memories]


def _insert_copies(
    graph: StepGraph,
    needed: Sequence[Tuple[torch.fx.Node, List[torch.fx.Node], bool]],
    buffers: Sequence[torch.fx.Node],
    views: Sequence[torch.fx.Node],
) -> StepGraph:
    # A copy of the graph: the captured one is what the user is shown, without these operators.
    copied = torch.fx.Graph()
    images: Dict[torch.fx.Node, torch.fx.Node] = {}
    end = copied.output(copied.graph_copy(graph.graph, images))
    for node, arguments, needs_result in needed:
        image = images[node]
        for argument in arguments:
            with copied.inserting_before(image):
                copy = _insert_clone(images[argument], images[argument])
            target = image.args[0]
            image.replace_input_with(images[argument], copy)
            if argument in _list_declared_writes(node):
                image.args = (target, *image.args[1:])  # `x.mul_(x)` writes to `x` itself
        if needs_result and _list_declared_writes(node):
            _write_result_of_copy(image)
        elif needs_result:
            # everything else works on a copy of the result, which stays as it is
            with copied.inserting_after(image):
                copy = _insert_clone(image, image)
            _replace_elsewhere(image, copy)
    for node in views:
        _take_views_singly(images[node])
    first = next(node for node in copied.nodes if node.op != "placeholder")
    for buffer in buffers:
        _end_history(images[buffer], first, end)
    return dataclasses.replace(graph, graph=copied)


def _end_history(buffer: torch.fx.Node, first: torch.fx.Node, end: torch.fx.Node) -> None:
    """Work on a copy of `buffer` between `first` and `end`, and write its value back at the end."""
    with buffer.graph.inserting_before(first):
        copy = _insert_clone(buffer, buffer)
    _replace_elsewhere(buffer, copy)
    with buffer.graph.inserting_before(end):
        # The history ends here. Otherwise the next micro-batch would go back through this one, which is freed.
        value = buffer.graph.call_function(aten.detach.default, (copy,))
        written = buffer.graph.call_function(aten.copy_.default, (buffer, value))
    for node in (value, written):
        node.meta.update(buffer.meta)


def _write_result_of_copy(node: torch.fx.Node) -> None:
    """Let `node` work on a copy of what it writes to, which stays as it is, and write the result."""
    target: Any = node.target
    written = node.args[0]
    with node.graph.inserting_before(node):
        before = _insert_clone(written, node)
        value = node.graph.call_function(target, (before, *node.args[1:]), dict(node.kwargs))
    value.meta.update(node.meta)
    node.target, node.args, node.kwargs = aten.copy_.default, (written, value), {}


def _replace_elsewhere(node: torch.fx.Node, copy: torch.fx.Node) -> None:
    """Let all read `copy` that read `node`, but for the copy itself."""
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)


def _insert_clone(value: Any, like: torch.fx.Node) -> torch.fx.Node:
    copy: torch.fx.Node = like.graph.call_function(aten.clone.default, (value,))
    copy.meta.update(like.meta)
    return copy


def _take_views_singly(node: torch.fx.Node) -> None:
    """Exchange what is taken out of the results of `node` for views of their own."""
    source = node.args[0]
    calls = list(_iter_single_calls(node))
    for part in [user for user in node.users if user.target is operator.getitem]:
        index: Any = part.args[1]
        target, arguments = calls[index]
        with node.graph.inserting_before(part):
            view = node.graph.call_function(target, (source, *arguments))
        view.meta.update(part.meta)
        part.replace_all_uses_with(view)
        node.graph.erase_node(part)


def _iter_single_calls(node: torch.fx.Node) -> Iterator[Tuple[Any, List[int]]]:
    """Yield for each result the operator that makes it alone, and its arguments after the tensor."""
    target: Any = node.target
    arguments: Any = map_arg((node.args, dict(node.kwargs)), lambda used: used.meta["val"])
    args, kwargs = arguments
    dim = name_arguments(target, args, kwargs).get("dim", 0)
    with args[0].fake_mode:
        results = target(*args, **kwargs)
    start = 0
    for index, result in enumerate(results):
        if _find_operator(node) == "unbind":
            yield aten.select.int, [dim, index]
        else:
            yield aten.narrow.default, [dim, start, result.shape[dim]]
            start += result.shape[dim]
