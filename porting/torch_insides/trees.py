"""Name torch's functions for nested lists, tuples and dictionaries; what reads arguments of operators uses them."""

from __future__ import annotations

from typing import Any, Callable, List

from .parts import Parts

__all__ = ["PARTS", "probe", "tree_leaves", "tree_map"]

PARTS = Parts("containers that were registered with torch are not looked into")
probe = PARTS.probe


def map_plainly(function: Callable[[Any], Any], tree: object) -> Any:
    """Apply `function` to what is no list, tuple or dictionary."""
    if isinstance(tree, dict):
        return type(tree)((key, map_plainly(function, item)) for key, item in tree.items())
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_plainly(function, item) for item in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_plainly(function, item) for item in tree)
    return function(tree)


def list_leaves_plainly(tree: object) -> List[Any]:
    """List what is no list, tuple or dictionary, in order."""
    leaves: List[Any] = []
    map_plainly(leaves.append, tree)
    return leaves


tree_map: Callable[[Callable[[Any], Any], Any], Any] = PARTS.find("torch.utils._pytree:tree_map", instead=map_plainly)
tree_leaves: Callable[[Any], List[Any]] = PARTS.find("torch.utils._pytree:tree_leaves", instead=list_leaves_plainly)
