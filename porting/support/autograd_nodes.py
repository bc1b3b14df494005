"""Tell autograd's nodes apart by the operator of `forward` that made them.

Timelines, the NaN search and proofs use it.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List

__all__ = ["NewNodes", "is_leaf_node"]


class NewNodes:
    """Finds the nodes that are new since the last call; it holds them, so that no identity is used twice.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> nodes = NewNodes()
    >>> [node.name() for node in nodes.take([x * 2])]
    ['MulBackward0', 'torch::autograd::AccumulateGrad']
    >>> nodes.take([x])
    []
    """

    def __init__(self) -> None:
        self._known: Dict[Any, None] = {}

    def take(self, results: Iterable[Any]) -> List[Any]:
        """Return the new nodes that lead to `results`, tensors that an operator has returned."""
        found: List[Any] = []
        waiting = [result.grad_fn for result in results if result.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node not in self._known:
                self._known[node] = None
                found.append(node)
                waiting += [following for following, _slot in node.next_functions if following is not None]
        return found

    def __iter__(self) -> Iterator[Any]:
        return iter(self._known)


def is_leaf_node(node: object) -> bool:
    """Tell whether a node is a parameter's own, which only adds up gradients."""
    return hasattr(node, "variable")
