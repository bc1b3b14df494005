"""`OperandNames`: the values that go into an operator of a replayed graph, by the names that the user knows."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...nan_search.not_finite import WatchedOperator
from ...nan_search.operator_records import NamedValue
from .direct_calls import Call

__all__ = ["NodeOperands", "OperandNames", "describe_operator", "list_leaves"]


class NodeOperands(NamedTuple):
    """Name and kind of each leaf of an operator's arguments; `names_infinity` tells that one of them is infinite."""

    labels: Tuple[Tuple[str, str], ...]
    names_infinity: bool

    def pair(self, args: Sequence[Any], kwargs: Dict[str, Any]) -> List[NamedValue]:
        """Return the tensors among the values that the operator is called with."""
        leaves = list_leaves((args, tuple(kwargs.values())))
        return [
            NamedValue(name, leaf, kind)
            for (name, kind), leaf in zip(self.labels, leaves)
            if isinstance(leaf, torch.Tensor)
        ]


class OperandNames:
    """Names of what enters `graph`; other values are called by their nodes."""

    def __init__(self, graph: StepGraph) -> None:
        """Look at what enters; nothing is computed."""
        self._entering = {node: (info.name, info.kind) for node, info in zip(graph.placeholders, graph.entering)}

    def of(self, call: Call) -> NodeOperands:
        """Return the operands of a call whose arguments are nodes."""
        leaves = list(list_leaves((call.args, tuple(call.kwargs.values()))))
        infinite = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves)
        return NodeOperands(tuple(map(self._name_leaf, leaves)), infinite)

    def _name_leaf(self, leaf: Any) -> Tuple[str, str]:
        if not isinstance(leaf, torch.fx.Node):
            return ("", "")
        return self._entering.get(leaf, (leaf.name, ""))


def describe_operator(node: torch.fx.Node) -> WatchedOperator:
    """Return the operator of `node` as findings name it."""
    name = node.meta.get("operator", str(node.target))
    return WatchedOperator(name, node.meta.get("module_path", ""), node.meta.get("place"))


def list_leaves(value: Any) -> Iterator[Any]:
    """Yield what is inside of lists and tuples, in order."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from list_leaves(item)
    else:
        yield value
