"""Operators' arguments, which may be tensors inside of lists: going through them, and replacing what is in them."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

from .device_tensor import DeviceTensor

__all__ = ["device_tensors", "list_leaves", "map_leaves"]


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to all that is no tuple, list or dictionary itself; torch's tree functions do much more.

    >>> map_leaves(str, ([1, 2], {"dim": None}))
    (['1', '2'], {'dim': 'None'})
    """
    kind = type(value)
    if kind is tuple:
        return tuple([map_leaves(function, item) for item in value])
    if kind is list:
        return [map_leaves(function, item) for item in value]
    if kind is dict:
        return {key: map_leaves(function, item) for key, item in value.items()}
    return function(value)


def list_leaves(value: Any) -> Iterator[Any]:
    """Go through all that `map_leaves` would replace, in the same order.

    >>> list(list_leaves(([1, 2], {"dim": None})))
    [1, 2, None]
    """
    kind = type(value)
    if kind is dict:
        value = value.values()
    elif kind is not tuple and kind is not list:
        yield value
        return
    for item in value:
        yield from list_leaves(item)


def device_tensors(value: Any) -> List[DeviceTensor]:
    """List the device tensors among the leaves."""
    return [leaf for leaf in list_leaves(value) if isinstance(leaf, DeviceTensor)]
