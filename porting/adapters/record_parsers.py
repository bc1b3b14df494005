"""Teach PopTorch to find the tensors in objects of dataclasses, which it does not look into by itself.

Ports do so with what their model returns.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, Set

import torch

from porting.remedies.device_values import is_on_device
from porting.structure import flatten_tensors, is_record, read_fields, rebuild, replace_fields

__all__ = ["teach_records"]


def teach_records(value: object, *, register: Callable[[type, Any], Any], parser_class: type) -> None:
    """Register a parser for each dataclass of which `value`, which a model returns, has an object.

    `register` and `parser_class` are the backend's `registerCustomArgParser` and `ICustomArgParser`.
    """
    for kind in _collect_kinds(value, set()):
        register(kind, _make_parser(parser_class))


def _collect_kinds(value: object, found: Set[type]) -> Set[type]:
    if is_record(value):
        found.add(type(value))
        value = read_fields(value)
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else ()
    for item in items:
        _collect_kinds(item, found)
    return found


def _make_parser(base: type) -> Any:
    """Make a parser of the backend's own class."""

    def iter_tensors(_parser: object, struct: object) -> Iterator[torch.Tensor]:
        return iter(flatten_tensors(read_fields(struct)))

    def reconstruct(_parser: object, original_structure: object, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        fields = read_fields(original_structure)
        # all tensors of an argument, and of what a model returned those that are the device's
        is_returned = is_on_device(fields)
        rebuilt = rebuild(fields, tensor_iterator, replaces=lambda tensor: not is_returned or is_on_device(tensor))
        return replace_fields(original_structure, rebuilt)

    return type("RecordParser", (base,), {"yieldTensors": iter_tensors, "reconstruct": reconstruct})()
