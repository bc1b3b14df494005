"""Indices of a batch, such as labels and tokens: their bounds are known from the graph, and looked at before a run.

A compiled step writes weights while it runs. If it met a bad label in the middle, some weights would be updated and
others not. So a call with a bad label is replayed, which raises the operator's error before it updates anything.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.operator_schema import name_arguments

__all__ = ["IndexBounds", "find_schema_name", "has_bad_index", "list_index_bounds"]

IndexBounds = Tuple[int, int, int, Optional[int]]
"""The number of an input, its least value, the end of its range, and a value that is allowed besides."""

# What passes on every element; an input that is only used in part may have anything in the rest.
_ALL_ELEMENTS = frozenset(
    f"aten::{name}"
    for name in (
        *("alias", "clone", "contiguous", "detach", "flatten", "permute", "reshape", "squeeze", "t", "to", "_to_copy"),
        *("transpose", "unsqueeze", "view"),
    )
)
_LOSSES = frozenset({"aten::cross_entropy_loss", "aten::nll_loss", "aten::nll_loss_nd", "aten::nll_loss2d"})


def list_index_bounds(graph: StepGraph) -> Tuple[IndexBounds, ...]:
    """Return the bounds of the inputs that an operator of the graph takes as indices, whole."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    first = len(graph.parameters) + len(graph.buffers)
    found: List[IndexBounds] = []
    for number, placeholder in enumerate(placeholders[first : first + len(graph.inputs)]):
        for node in _follow_elements(placeholder):
            for user in node.users:
                bounds = _read_bounds(user, node)
                if bounds is not None and (number, *bounds) not in found:
                    found.append((number, *bounds))
    return tuple(found)


def has_bad_index(inputs: Sequence[torch.Tensor], bounds: Sequence[IndexBounds]) -> bool:
    """Tell whether an input of a call has a value out of its bounds."""
    for number, low, end, ignored in bounds:
        values = inputs[number]
        if not values.numel():
            continue
        # One pass over the batch. Only where it finds something, the ignored index is looked at too.
        least, most = torch.aminmax(values)
        if low <= int(least) and int(most) < end:
            continue
        is_bad = (values < low) | (values >= end)
        if bool((is_bad if ignored is None else is_bad & (values != ignored)).any()):
            return True
    return False


def _follow_elements(placeholder: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Yield the nodes that have all elements of an input of integers, and no others."""
    # Followed through views and copies: a label is often flattened or cast before the loss takes it.
    waiting, seen = [placeholder], {placeholder}
    while waiting:
        node = waiting.pop()
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int32, torch.int64):
            yield node
            for user in node.users:
                if find_schema_name(user) in _ALL_ELEMENTS and user.args[0] is node and user not in seen:
                    seen.add(user)
                    waiting.append(user)


def find_schema_name(node: torch.fx.Node) -> str:
    """Return the name of an operator with its namespace; empty for what is none."""
    return str(getattr(getattr(node.target, "_schema", None), "name", ""))


def _read_bounds(node: torch.fx.Node, index: torch.fx.Node) -> Optional[Tuple[int, int, Optional[int]]]:
    """Return the range in which an operator wants `index`, and what it ignores; None if it takes it for no index."""
    name = find_schema_name(node)
    given = name_arguments(node.target, node.args, node.kwargs) if name else {}
    if name == "aten::embedding" and given["indices"] is index:
        return (0, given["weight"].meta["val"].shape[0], None)
    if name in _LOSSES and given["target"] is index:
        shape = given["self"].meta["val"].shape
        return (0, shape[1] if len(shape) > 1 else shape[0], int(given["ignore_index"]))
    if name in ("aten::gather", "aten::index_select") and given["index"] is index:
        return (0, given["self"].meta["val"].shape[given["dim"]], None)
    return None
