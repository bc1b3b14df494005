"""Tell autograd's nodes apart by the operator of `forward` that made them; watchers put their hooks on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Optional

import torch

if TYPE_CHECKING:  # torch 2.0 has it not
    from torch.autograd.graph import Node

__all__ = ["NewNodes"]


class NewNodes:
    """Finds the nodes that are new since the last call; it holds them, so that no identity is used twice.

    >>> x = torch.ones(2, requires_grad=True)
    >>> nodes = NewNodes()
    >>> [node.name() for node in nodes.take([x * 2])]
    ['MulBackward0']
    >>> nodes.take([x])
    []
    >>> nodes.find_leaf(x).name()
    'torch::autograd::AccumulateGrad'
    """

    def __init__(self) -> None:
        self._known: Dict[Any, None] = {}

    def take(self, results: Iterable[torch.Tensor]) -> List[Node]:
        """Return the new nodes that lead to `results` of an operator, but for the leaves, which only add up."""
        found: List[Any] = []
        waiting = [result.grad_fn for result in results if result.grad_fn is not None]
        while waiting:
            node = waiting.pop()
            if node not in self._known:
                self._known[node] = None
                found.append(node)
                waiting += [following for following, _slot in node.next_functions if following is not None]
        return [node for node in found if not hasattr(node, "variable")]

    def find_leaf(self, parameter: torch.Tensor) -> Optional[Node]:
        """Return the node that adds up the gradients of a parameter, if it was seen."""
        return next((node for node in self._known if getattr(node, "variable", None) is parameter), None)
