"""Finds values that a graph would freeze: two captures of one `forward` disagree about what Python decides."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, List, Optional

import torch

from ..diagnostics import Place
from .operator_schema import list_leaves
from .step_graph import StepGraph
from .subgraphs import Body

__all__ = ["FrozenValue", "are_same_tensors", "are_same_values", "list_frozen_values", "name_operator", "show_value"]

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


def list_frozen_values(first: StepGraph, second: StepGraph) -> List[FrozenValue]:
    """List what is different about two captures of one step, in the order of the graph."""
    found = []
    constants = [node for node in first.placeholders if node.meta.get("kind") == "constant"]
    for node, before, after in zip(constants, first.constant_values, second.constant_values):
        if not are_same_tensors(before, after):
            # the constant itself has no line: the operator that takes it does
            found.append(_describe_change(next(iter(node.users), node), show_value(before), show_value(after)))
    found += _list_different_nodes(first.graph, second.graph)
    for before, after in zip(list_leaves(first.output_structure), list_leaves(second.output_structure)):
        if isinstance(before, _PLAIN) and not are_same_values(before, after):
            found.append(FrozenValue(before, after, None, ""))
    return found


def _list_different_nodes(first: torch.fx.Graph, second: torch.fx.Graph) -> List[FrozenValue]:
    found: List[FrozenValue] = []
    for one, other in itertools.zip_longest(first.nodes, second.nodes):
        # names of functions that a call makes anew are the same, the functions are not
        is_same = one is not None and other is not None and one.op == other.op
        if not is_same or not (one.target is other.target or name_operator(one) == name_operator(other)):
            node = next(node for node in (one, other) if node is not None and node.op != "output")
            names = [name_operator(node) for node in (one, other)]
            # Python took another branch: what follows is another program
            found.append(_describe_change(node, *names, changes_operators=True))
            break
        ours, theirs = list_leaves((one.args, dict(one.kwargs))), list_leaves((other.args, dict(other.kwargs)))
        for before, after in itertools.zip_longest(ours, theirs):
            if isinstance(before, Body) and isinstance(after, Body):
                found += _list_different_nodes(before.graph, after.graph)
            elif not are_same_values(before, after):
                found.append(_describe_change(one, before, after))
    return found


def _describe_change(
    node: torch.fx.Node, before: object, after: object, *, changes_operators: bool = False
) -> FrozenValue:
    place = node.meta.get("place")
    return FrozenValue(before, after, place, str(node.meta.get("module_path", "")), changes_operators)


def name_operator(node: Optional[torch.fx.Node]) -> str:
    """Name what a node calls, for messages."""
    if node is None or node.op == "output":
        return "nothing"
    target = node.target
    return target if isinstance(target, str) else str(node.meta.get("operator", getattr(target, "__name__", target)))


def are_same_values(before: object, after: object) -> bool:
    """Tell whether two arguments of an operator are the same; objects of kinds that nobody knows are taken to be."""
    if isinstance(before, torch.fx.Node) or isinstance(after, torch.fx.Node):
        return getattr(before, "name", None) == getattr(after, "name", None)
    # NaN is no other value than NaN
    if before is after or (before != before and after != after):
        return True
    is_plain = before is None or after is None or isinstance(before, _PLAIN) or isinstance(after, _PLAIN)
    return not is_plain or (type(before) is type(after) and bool(before == after))


def are_same_tensors(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Tell whether two tensors have the same type, shape and values; NaN is no other value than NaN."""
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if before.is_meta or after.is_meta:
        return True  # nobody can tell
    same = before == after
    return bool((same | ((before != before) & (after != after))).all())


def show_value(value: torch.Tensor) -> Any:
    """Return what a message says of a tensor."""
    return value.item() if value.numel() == 1 else f"a tensor of shape {list(value.shape)}"
