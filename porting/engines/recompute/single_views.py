"""Views that torch makes several of at once, taken one by one: autograd lets only such ones be written to."""

from __future__ import annotations

import operator
from typing import Any, Iterator, List, Tuple

import torch
from torch.fx.node import map_arg

from ...capture.operator_schema import operator_name

__all__ = ["makes_several_views", "take_views_singly"]

aten = torch.ops.aten

_SEVERAL = frozenset("split split_with_sizes chunk unbind tensor_split".split())


def makes_several_views(node: torch.fx.Node) -> bool:
    """Tell whether the results of `node` are views of its first argument."""
    target: Any = node.target
    return isinstance(target, torch._ops.OpOverload) and operator_name(target) in _SEVERAL


def take_views_singly(node: torch.fx.Node) -> None:
    """Exchange what is taken out of the results of `node` for views of their own."""
    source = node.args[0]
    calls = list(_make_single_calls(node))
    for part in [user for user in node.users if user.target is operator.getitem]:
        index: Any = part.args[1]
        target, arguments = calls[index]
        with node.graph.inserting_before(part):
            view = node.graph.call_function(target, (source, *arguments))
        view.meta.update(part.meta)
        part.replace_all_uses_with(view)
        node.graph.erase_node(part)


def _make_single_calls(node: torch.fx.Node) -> Iterator[Tuple[Any, List[int]]]:
    """Yield for each result the operator that makes it alone, and its arguments after the tensor."""
    target: Any = node.target
    arguments: Any = map_arg((node.args, dict(node.kwargs)), lambda used: used.meta["val"])
    args, kwargs = arguments
    names = [argument.name for argument in target._schema.arguments]
    dim = {**dict(zip(names, args)), **kwargs}.get("dim", 0)
    # Torch computes the shapes of the views, also for sizes that do not divide.
    with args[0].fake_mode:
        results = target(*args, **kwargs)
    start = 0
    for index, result in enumerate(results):
        if operator_name(target) == "unbind":
            yield aten.select.int, [dim, index]
        else:
            yield aten.narrow.default, [dim, start, result.shape[dim]]
            start += result.shape[dim]
