"""Values that a larger tensor repeats, such as the scale of a channel, are computed once and not for each element.

Inductor writes a chain of elementwise operators into the loop that needs its result. The scale of a BatchNorm is a
square root and a division for each channel; in the loop over all pixels it was both for each vector, because the C++
compiler cannot know that what the loop writes is not what the scale is made of. Here such a value gets memory of its
own.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch

from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import REPEATED_VALUES, GraphLowering, TensorBox

__all__ = ["is_repeated", "repeated_values_once"]

# Less often, and the memory costs as much as it saves.
_LEAST_REPEATS = 16
_VIEWS = frozenset("alias detach expand permute reshape select slice squeeze transpose unsqueeze view".split())


@contextmanager
def repeated_values_once() -> Iterator[None]:
    """Make Inductor do so while the context lasts; MissingPart for a torch without the function."""
    REPEATED_VALUES.require()
    with exchanged(GraphLowering, "run_node", _keep_repeated):
        yield


def _keep_repeated(original: Callable[..., Any]) -> Callable[..., Any]:
    def run_node(self: object, n: torch.fx.Node) -> Any:
        result = original(self, n)
        if isinstance(result, TensorBox) and is_repeated(n):
            result.realize()
        return result

    return run_node


def is_repeated(node: torch.fx.Node) -> bool:
    """Tell whether an operator that uses the value of `node`, perhaps a view of it, repeats each of its elements.

    Constants do not count: they are written into the loop as numbers. Nor do integers, which are indices.
    """
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor) or _is_view(node):
        return False
    if not value.is_floating_point() or not node.all_input_nodes:
        return False
    return _find_largest_use(node) >= _LEAST_REPEATS * max(1, value.numel())


def _find_largest_use(node: torch.fx.Node) -> int:
    """Return how many elements the largest result has that is computed from the value of `node`."""
    sizes = [0]
    for user in node.users:
        if _is_view(user):
            sizes.append(_find_largest_use(user))
        elif isinstance(user.meta.get("val"), torch.Tensor):
            sizes.append(user.meta["val"].numel())
    return max(sizes)


def _is_view(node: torch.fx.Node) -> bool:
    packet = getattr(node.target, "overloadpacket", None)
    return getattr(packet, "__name__", "") in _VIEWS
