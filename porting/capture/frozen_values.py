"""Finds values that a graph would freeze: two captures of one `forward` disagree about what Python decides."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional

import torch

from ..diagnostics import Place
from .operator_schema import list_leaves
from .step_graph import StepGraph
from .subgraphs import Body

__all__ = ["FrozenValue", "frozen_values"]

_PLAIN = (bool, int, float, complex, str, torch.dtype)


@dataclass(frozen=True)
class FrozenValue:
    """A value of the graph that is another one in the next capture.

    `changes_operators` tells that not a number but what is computed differs: Python has taken another branch. After
    that nothing can be compared.
    """

    before: Any
    after: Any
    place: Optional[Place]
    module_path: str
    changes_operators: bool = False


def frozen_values(first: StepGraph, second: StepGraph) -> List[FrozenValue]:
    """List what is different about two captures of one step, in the order of the graph."""
    found = list(_different_constants(first, second))
    found += _different_nodes(first.graph, second.graph)
    for before, after in zip(list_leaves(first.output_structure), list_leaves(second.output_structure)):
        if isinstance(before, _PLAIN) and not _are_same(before, after):
            found.append(FrozenValue(before, after, None, ""))
    return found


def _different_constants(first: StepGraph, second: StepGraph) -> Iterator[FrozenValue]:
    nodes = [node for node in first.placeholders if node.meta.get("kind") == "constant"]
    for node, before, after in zip(nodes, first.constant_values, second.constant_values):
        if not _are_same_tensors(before, after):
            yield _of_node(next(iter(node.users), node), _show_value(before), _show_value(after))


def _different_nodes(first: torch.fx.Graph, second: torch.fx.Graph) -> List[FrozenValue]:
    found: List[FrozenValue] = []
    for one, other in itertools.zip_longest(first.nodes, second.nodes):
        if one is None or other is None or not _are_same_operators(one, other):
            node = next(node for node in (one, other) if node is not None and node.op != "output")
            names = [_operator_of(node) for node in (one, other)]
            found.append(_of_node(node, *names, changes_operators=True))
            break
        ours, theirs = list_leaves((one.args, dict(one.kwargs))), list_leaves((other.args, dict(other.kwargs)))
        for before, after in itertools.zip_longest(ours, theirs):
            if isinstance(before, Body) and isinstance(after, Body):
                found += _different_nodes(before.graph, after.graph)
            elif not _are_same(before, after):
                found.append(_of_node(one, before, after))
    return found


def _of_node(node: torch.fx.Node, before: Any, after: Any, *, changes_operators: bool = False) -> FrozenValue:
    place = node.meta.get("place")
    return FrozenValue(before, after, place, str(node.meta.get("module_path", "")), changes_operators)


def _are_same_operators(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    if one.op != other.op:
        return False
    # names of functions that a call makes anew are the same, the functions are not
    return one.target is other.target or _operator_of(one) == _operator_of(other)


def _operator_of(node: Optional[torch.fx.Node]) -> str:
    if node is None or node.op == "output":
        return "nothing"
    target = node.target
    return target if isinstance(target, str) else str(node.meta.get("operator", getattr(target, "__name__", target)))


def _are_same(before: Any, after: Any) -> bool:
    """Tell whether two arguments of an operator are the same; objects of kinds that nobody knows are taken to be."""
    if isinstance(before, torch.fx.Node) or isinstance(after, torch.fx.Node):
        return getattr(before, "name", None) == getattr(after, "name", None)
    if before is after or (before != before and after != after):
        return True
    is_plain = before is None or after is None or isinstance(before, _PLAIN) or isinstance(after, _PLAIN)
    return not is_plain or (type(before) is type(after) and bool(before == after))


def _are_same_tensors(before: torch.Tensor, after: torch.Tensor) -> bool:
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    same = before == after
    return bool((same | ((before != before) & (after != after))).all())


def _show_value(value: torch.Tensor) -> Any:
    if value.numel() == 1:
        return value.item()
    return f"a tensor of shape {list(value.shape)}"
