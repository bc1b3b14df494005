"""A graph whose images and convolution weights have their channels innermost, which many convolutions prefer.

The operators stay the same; only the order of elements in memory changes, so every value has to stay what it was
whatever the order. Operators that look at the order (`view`, `as_strided`, random numbers drawn element by element) are
given the order that they had, or do their work on a copy where nobody can tell a copy from a view.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any, Optional, Sequence, Set

import torch

from ...capture import StepGraph
from ...capture.device_operators import device_operator
from ...capture.graph_flow import is_random, tensor_memory, written_nodes
from ...capture.operator_schema import name_arguments, operator_name
from ...capture.shape_mode import in_order_of
from ...torch_insides.operators import SET_GRAD_ENABLED, TO_COPY, UNSAFE_VIEW, OpOverload
from ..calls.executable import Choice

__all__ = ["LayoutError", "lay_out", "put_channels_last"]

aten = torch.ops.aten

_CONVOLUTIONS = frozenset(["conv2d", "conv3d", "convolution", "conv_transpose2d", "conv_transpose3d", "_convolution"])
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}

_OTHERWISE_COPIED = {
    aten.view.default: aten.reshape.default,
    UNSAFE_VIEW: aten.reshape.default,
    aten.view_as.default: aten.reshape_as.default,
}
# Their result is a view or a copy, as the order in memory has it.
_VIEW_OR_COPY = frozenset("reshape reshape_as flatten ravel contiguous to view view_as _unsafe_view".split())
_READ_MEMORY = frozenset("as_strided as_strided_copy as_strided_scatter view_as_real view_as_complex".split())
_CASTS = (aten.to.dtype, TO_COPY)
_PLAIN = (operator.getitem, SET_GRAD_ENABLED)
_POOLS = frozenset("adaptive_avg_pool2d adaptive_avg_pool3d mean".split())
_CHANGE_MEMORY = frozenset("resize_ resize_as_ set_ as_strided_".split())


class LayoutError(Exception):
    """The graph cannot run in another memory format; the text is the reason, in a few words."""


def put_channels_last(graph: StepGraph) -> StepGraph:
    """Return `graph` for a state whose convolution weights have their channels innermost.

    `DeviceState.for_graph` of the result makes that state. Inputs come as ever, and are put in order inside; results
    are as ever too. Raises LayoutError with the reason where that could change what the graph computes.

    >>> from porting.capture import capture_step
    >>> graph = capture_step(torch.nn.Conv2d(2, 3, 3), [torch.ones(1, 2, 8, 8)], mode="inference")
    >>> put_channels_last(graph).placeholders[0].meta["val"].stride()
    (18, 1, 6, 2)
    """
    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    # Bodies of loops and branches are graphs of their own, which nothing here looks into.
    for node in copied.nodes:
        is_plain = isinstance(node.target, OpOverload) or node.target in _PLAIN
        if node.op == "call_function" and not is_plain:
            raise LayoutError("a loop, a branch or a call of the host may look at the memory of its tensors")
    values = ((node, node.meta.get("val")) for node in copied.nodes)
    ordinary = {node for node, value in values if isinstance(value, torch.Tensor) and value.is_contiguous()}
    stored = _collect_stored_weights(copied, graph)
    if not stored:
        raise LayoutError("no convolution works on a weight of its own")
    weights = _move_weights(stored)
    images = _convert_inputs(copied, graph)
    _Adaptation(copied, moved=weights | images, ordinary=ordinary | images).run()
    return dataclasses.replace(graph, graph=copied)


def lay_out(graph: StepGraph, choice: Choice) -> StepGraph:
    """Return `graph` in the memory format of `choice`; LayoutError with the reason where it has no such form."""
    return put_channels_last(graph) if choice.channels_last else graph


def _find_weight(node: torch.fx.Node) -> Optional[torch.fx.Node]:
    """Return the weight of a convolution over images or volumes."""
    if not isinstance(node.target, OpOverload) or operator_name(node.target) not in _CONVOLUTIONS:
        return None
    weight: Any = node.args[1]
    return weight if weight.meta["val"].dim() in _FORMATS else None


def _collect_stored_weights(graph: torch.fx.Graph, step: StepGraph) -> Set[torch.fx.Node]:
    """Return the placeholders of convolution weights."""
    trained = set(list(graph.nodes)[: len(step.parameters)])
    # Only weights of the state itself: what the graph computes a weight from has an order that others rely on.
    stored: Set[torch.fx.Node] = set()
    for weight in filter(None, map(_find_weight, graph.nodes)):
        # before it is cast to the type of the activations; casts keep the order of elements
        while weight.target in _CASTS and isinstance(weight.args[0], torch.fx.Node):
            weight = weight.args[0]
        stored.add(weight)
    return stored & trained


def _move_weights(stored: Set[torch.fx.Node]) -> Set[torch.fx.Node]:
    """Let placeholders of convolution weights say that their channels are innermost; return those that change."""
    # One channel, or one voxel, lies in memory alike in both orders. Of volumes torch's tensors without values do not
    # keep the strides that would say so: a program would be compiled for others than the state has.
    weights = {
        weight
        for weight in stored
        if weight.meta["val"].dim() < 5 or not weight.meta["val"].is_contiguous(memory_format=torch.channels_last_3d)
    }
    for weight in weights:
        value = weight.meta["val"]
        pattern = torch.empty(tuple(value.shape), device="meta", memory_format=_FORMATS[value.dim()])
        # the same memory, so that views of it are still known as such
        weight.meta = {**weight.meta, "val": in_order_of(value, pattern.stride())}
    return weights


def _convert_inputs(graph: torch.fx.Graph, step: StepGraph) -> Set[torch.fx.Node]:
    """Put the images among the inputs in order before anything else happens; return what they are then."""
    first = next(node for node in graph.nodes if node.op != "placeholder")
    start = len(step.parameters) + len(step.buffers)
    inputs = [node for node in graph.nodes if node.op == "placeholder"][start : start + len(step.inputs)]
    feeding: Set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if _find_weight(node) is not None or node in feeding:
            feeding.update(node.all_input_nodes)
    converted: Set[torch.fx.Node] = set()
    for index, node in enumerate(inputs):
        value = node.meta["val"]
        is_image = value.dim() in _FORMATS and value.is_floating_point() and node in feeding
        if is_image and index not in step.mutated_inputs:
            # The host's batch comes in the usual order, and is put in the other one in each micro-batch.
            copy = _insert_copy(node, before=first, memory_format=_FORMATS[value.dim()])
            node.replace_all_uses_with(copy, delete_user_cb=lambda user, copy=copy: user is not copy)
            converted.add(copy)
    return converted


def _insert_copy(node: torch.fx.Node, *, before: torch.fx.Node, memory_format: torch.memory_format) -> torch.fx.Node:
    """Insert a copy of `node` whose elements are in another order; nobody uses it yet."""
    with before.graph.inserting_before(before):
        copy: torch.fx.Node = before.graph.call_function(
            aten.contiguous.default, (node,), {"memory_format": memory_format}
        )
    copy.meta.update({key: value for key, value in node.meta.items() if key in ("val", "module_path", "place")})
    return copy


def _pools_whole_images(node: torch.fx.Node) -> bool:
    """Tell whether a value is one number for each channel of each image, which lie in the same order in any format."""
    name = operator_name(node.target) if isinstance(node.target, OpOverload) else ""
    value = node.meta.get("val")
    if name not in _POOLS or not isinstance(value, torch.Tensor) or not value.is_contiguous():
        return False
    shape = node.all_input_nodes[0].meta["val"].shape
    if name == "mean":
        dims: Any = name_arguments(node.target, node.args, node.kwargs).get("dim")
        is_whole = isinstance(dims, (list, tuple)) and {dim % len(shape) for dim in dims} == set(range(2, len(shape)))
    else:
        is_whole = value.numel() == shape[:2].numel()
    return is_whole and len(shape) in _FORMATS


class _Adaptation:
    """Follows what may lie in another order (`moved`) than the `ordinary` one, and changes operators that notice."""

    def __init__(self, graph: torch.fx.Graph, *, moved: Set[torch.fx.Node], ordinary: Set[torch.fx.Node]) -> None:
        self._nodes = list(graph.nodes)
        self._moved = moved
        self._ordinary = ordinary
        # A view that becomes a copy is another value as soon as somebody writes to the original.
        self._last_write = {
            tensor_memory(written): position
            for position, node in enumerate(self._nodes)
            if node.op == "call_function"
            for written in written_nodes(node)
        }

    def run(self) -> None:
        """Change the graph; LayoutError with the reason if that cannot be done."""
        for position, node in enumerate(self._nodes):
            used = [value for value in node.all_input_nodes if value in self._moved]
            if node.op == "output":
                self._restore_order([value for value in used if value in self._ordinary], node)
            elif used and node not in self._moved:
                if isinstance(node.target, OpOverload):
                    self._adapt_operator(node, used, position)
                if not _pools_whole_images(node):
                    self._moved.add(node)

    def _adapt_operator(self, node: torch.fx.Node, used: Sequence[torch.fx.Node], position: int) -> None:
        target: Any = node.target
        name = operator_name(target)
        if name in _CHANGE_MEMORY:
            raise LayoutError(f"`{name}` changes the memory of its tensor")
        if name in _VIEW_OR_COPY:
            self._require_no_later_write([node, *used], position)
            if target in _OTHERWISE_COPIED:
                node.target = _OTHERWISE_COPIED[target]
            elif name == "view":  # as another type
                self._restore_order(used, node)
        # The code of an operator that is not torch's own may go through memory by address, as random numbers do.
        elif name in _READ_MEMORY or target.namespace != "aten" or device_operator(target) or is_random(node):
            if any(value in written_nodes(node) for value in used):
                raise LayoutError(f"`{name}` writes to its tensor in the order of the memory")
            self._require_no_later_write([node, *used], position)
            self._restore_order(used, node)

    def _require_no_later_write(self, nodes: Sequence[torch.fx.Node], position: int) -> None:
        """Make sure that nobody can tell a view from a copy: none is written to from here on."""
        if any(self._last_write.get(tensor_memory(node), -1) > position for node in nodes):
            raise LayoutError(f"`{nodes[0].name}` may become a copy, and is written to later")

    def _restore_order(self, values: Sequence[torch.fx.Node], user: torch.fx.Node) -> None:
        """Give `user` the order of elements that `values` had before."""
        for value in values:
            if value not in self._ordinary:
                raise LayoutError(f"`{operator_name(user.target)}` looks at the memory of `{value.name}`")
            if len(value.meta["val"].shape) > 1:
                copy = _insert_copy(value, before=user, memory_format=torch.contiguous_format)
                user.replace_input_with(value, copy)
