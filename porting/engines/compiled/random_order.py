"""The order of random numbers in a traced graph, said by shapes instead of by the order of elements in memory.

Torch draws the numbers of a tensor in the order in which its elements lie in memory, for most operators and
processors. A compiler lays out tensors as it likes, and the same numbers would end up at other elements. Where the
order is not the usual one, the graph is changed: the numbers are drawn into a contiguous tensor with the dimensions in
that order, which is then looked at as the other. Whether that draws the same numbers is tried out.
"""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import torch

from ...capture.graph_flow import is_random
from ...torch_insides.fake_tensors import unset_fake_temporarily
from ...torch_insides.operators import OpOverload, read_schema

__all__ = ["declare_random_order"]

aten = torch.ops.aten

# What draws a new tensor like another, and what draws one of a shape.
_DRAWN_LIKE = {aten.rand_like.default: aten.rand.default, aten.randn_like.default: aten.randn.default}


def declare_random_order(graph: torch.fx.Graph) -> None:
    """Change `graph`, the nodes of which have values, in place; it computes the same."""
    for node in list(graph.nodes):
        if node.target is aten.empty_like.default and any(map(_is_filling, node.users)):
            _draw_in_order(graph, node, aten.empty.memory_format)
        elif node.target in _DRAWN_LIKE:
            _draw_in_order(graph, node, _DRAWN_LIKE[node.target])


def _is_filling(user: torch.fx.Node) -> bool:
    """Tell whether a node fills its tensor with random numbers that depend on numbers alone."""
    is_in_place = isinstance(user.target, OpOverload) and read_schema(user.target).name.endswith("_")
    return is_in_place and is_random(user) and len(user.all_input_nodes) == 1


def _draw_in_order(graph: torch.fx.Graph, node: torch.fx.Node, make: Callable[..., Any]) -> None:
    """Let `make` make what `node` makes, if that is dense and in another order than the usual one."""
    value: torch.Tensor = node.meta["val"]
    strides = value.stride()
    order = sorted(range(value.dim()), key=strides.__getitem__, reverse=True)
    in_order = value.permute(order)
    if value.is_contiguous() or not in_order.is_contiguous():
        return
    fills = [user for user in node.users if _is_filling(user)]
    draws: List[Draw] = [_make_filling(user) for user in fills]
    if not fills:
        target: Any = node.target
        draws = [lambda like: make(like.shape, dtype=like.dtype) if like.is_contiguous() else target(like)]
    # Left as it is then. The program draws other numbers than replay, and tuning finds out.
    if not all(_draws_same(draw, value, order) for draw in draws):
        return
    with graph.inserting_before(node):
        made = graph.call_function(make, (list(in_order.shape),), {"dtype": value.dtype})
        made.meta["val"] = in_order
        shown = _show_in_order(graph, made, order, value)
    for user in fills:
        user.replace_input_with(node, made)
        user.meta["val"] = in_order
        with graph.inserting_after(user):
            filled = _show_in_order(graph, user, order, value)
        for other in [other for other in user.users if other is not filled]:
            other.replace_input_with(user, filled)
    node.replace_all_uses_with(shown)
    graph.erase_node(node)


Draw = Callable[[torch.Tensor], torch.Tensor]


def _make_filling(user: torch.fx.Node) -> Draw:
    target: Any = user.target
    return lambda tensor: target(tensor, *user.args[1:], **user.kwargs)


def _draws_same(draw: Draw, value: torch.Tensor, order: Sequence[int]) -> bool:
    """Try out whether `draw` draws the same numbers for a tensor like `value` and one with dimensions in `order`."""
    drawn: List[torch.Tensor] = []
    # Tried with real numbers: whether the order of memory matters depends on operator, type and processor.
    with unset_fake_temporarily(), torch.random.fork_rng(devices=[]):
        tensor = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        for like in (tensor, torch.empty([value.shape[dim] for dim in order], dtype=value.dtype)):
            torch.manual_seed(0)
            drawn.append(draw(like))
        return torch.equal(drawn[0].permute(list(order)), drawn[1])


def _show_in_order(
    graph: torch.fx.Graph, made: torch.fx.Node, order: Sequence[int], value: torch.Tensor
) -> torch.fx.Node:
    """Look at `made`, the dimensions of which are in `order`, as at `value`."""
    inverse: List[int] = [list(order).index(dim) for dim in range(len(order))]
    shown = graph.call_function(aten.permute.default, (made, inverse))
    shown.meta["val"] = value
    return shown
