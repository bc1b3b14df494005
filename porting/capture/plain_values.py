"""Arguments of operators as values that JSON can hold, and back.

What JSON has no word for is a dictionary with the single key of its kind: `{"dtype": "float32"}`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Callable, Dict, Iterable, List, Mapping

import torch

from ..diagnostics import Place

__all__ = ["UndescribableError", "dtype_name", "dtype_named", "place_from_data", "value_from_data", "value_to_data"]

_PLAIN = frozenset([type(None), bool, int, str])
_FLAGS: Dict[str, Any] = {
    str(flag): flag
    for flag in (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
        torch.strided,
    )
}


class UndescribableError(Exception):
    """A value has no description; `value` is it, and `node` the operator that it belongs to, where that is known."""

    def __init__(self, value: object, node: Any = None) -> None:
        """Keep the value."""
        super().__init__(f"{type(value).__name__} has no description")
        self.value = value
        self.node = node


def _refuse_value(value: object) -> Any:
    raise UndescribableError(value)


def value_to_data(
    value: object, describe_other: Callable[[Any], Any] = _refuse_value, *, tells_sequences_apart: bool = True
) -> Any:
    """Describe `value` in values that JSON can hold.

    `describe_other` describes what is no plain value, such as a node of a graph; without it such a value raises
    UndescribableError. With `tells_sequences_apart=False` lists and tuples both become lists, which no operator minds.

    >>> value_to_data([torch.float16, 1.5, None])
    {'list': [{'dtype': 'float16'}, 1.5, None]}
    """
    # by exact type: a member of an `IntEnum` would come back as a mere number
    if type(value) in _PLAIN:
        return value
    # a node is by far the most usual argument
    if isinstance(value, torch.fx.Node):
        return describe_other(value)

    def describe(item: object) -> Any:
        return value_to_data(item, describe_other, tells_sequences_apart=tells_sequences_apart)

    if isinstance(value, (list, tuple)):
        items = list(map(describe, value))
        return {"tuple" if isinstance(value, tuple) else "list": items} if tells_sequences_apart else items
    if isinstance(value, Mapping):
        return {"dict": [[describe(key), describe(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": list(map(describe, (value.start, value.stop, value.step)))}
    for kind, content in _SCALARS_TO_DATA.items():
        if isinstance(value, kind):
            return content(value)
    if isinstance(value, (torch.layout, torch.memory_format)) and str(value) in _FLAGS:
        return {"flag": str(value)}
    return describe_other(value)


# JSON has no infinities and no NaN.
_SCALARS_TO_DATA: Dict[type, Callable[[Any], Any]] = {
    float: lambda value: value if math.isfinite(value) else {"float": str(value)},
    complex: lambda value: {"complex": [value_to_data(value.real), value_to_data(value.imag)]},
    torch.dtype: lambda value: {"dtype": dtype_name(value)},
    torch.device: lambda value: {"device": str(value)},
    Place: lambda value: {"place": list(dataclasses.astuple(value))},
}


def value_from_data(data: Any, read_other: Callable[[str, Any], Any]) -> Any:
    """Make the value again that `value_to_data` described, with lists and tuples told apart.

    `read_other` makes what another `describe_other` described; it gets the kind and the content. Nothing is executed.
    Raises AttributeError, LookupError, RuntimeError, TypeError or ValueError for what describes no value.
    """
    if not isinstance(data, dict):
        if isinstance(data, list):
            raise ValueError("a list stands where a value should")
        return data
    ((kind, content),) = data.items()
    if kind in _SEQUENCES_FROM_DATA:
        return _SEQUENCES_FROM_DATA[kind]([value_from_data(item, read_other) for item in content])
    if kind == "dict":
        return {value_from_data(key, read_other): value_from_data(item, read_other) for key, item in content}
    return _SCALARS_FROM_DATA[kind](content) if kind in _SCALARS_FROM_DATA else read_other(kind, content)


_SEQUENCES_FROM_DATA: Dict[str, Callable[[List[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "slice": lambda items: slice(*items),
    "complex": lambda items: complex(*items),
}


def place_from_data(parts: Iterable[Any]) -> Place:
    """Return the place of these parts; ValueError where they are none."""
    # a step file may come from anywhere, and the place is shown to people
    file, line, *span = parts
    is_one = isinstance(file, str) and type(line) is int
    if not is_one or len(span) != 3 or not all(item is None or type(item) is int for item in span):
        raise ValueError("a place is no place")
    return Place(file, line, *span)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type of elements, as in "float32"."""
    return str(dtype).replace("torch.", "")


def dtype_named(name: str) -> torch.dtype:
    """Return torch's type of that name; ValueError if there is none."""
    found = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(found, torch.dtype):
        raise ValueError(f"there is no type {name!r}")
    return found


_SCALARS_FROM_DATA: Dict[str, Callable[[Any], Any]] = {
    "float": float,
    "dtype": dtype_named,
    "device": torch.device,
    "flag": _FLAGS.__getitem__,
    "place": place_from_data,
}
