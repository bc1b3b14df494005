"""Flatten nested values with tensors inside, in one fixed order, and rebuild them.

Adapters, ports and the simulator use it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, TypeVar

import torch

__all__ = [
    "Structure",
    "StructureAdapter",
    "are_equal",
    "field_names",
    "find_opaque_holder",
    "flatten_tensors",
    "is_record",
    "make_call_arguments",
    "map_tensors",
    "outline",
    "read_fields",
    "rebuild",
    "register_structure_adapter",
    "replace_fields",
    "replace_item",
]


Structure = object
"""What may hold tensors: a tensor, a type with an adapter, or a list, tuple, mapping or record of any of these."""


_Record = TypeVar("_Record")


class StructureAdapter:
    """Reaches the tensors inside a user's own type; this is the protocol of PopTorch's `ICustomArgParser`."""

    def yieldTensors(self, struct: Structure) -> Iterator[torch.Tensor]:  # noqa: N802 - the vendor's spelling
        """Yield the tensors of `struct` in a fixed order."""
        raise NotImplementedError

    def reconstruct(self, original_structure: Structure, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        """Build an object like `original_structure` that takes its tensors from `tensor_iterator`."""
        raise NotImplementedError


_ADAPTERS: Dict[type, Any] = {}


def register_structure_adapter(kind: type, adapter: Optional[StructureAdapter]) -> None:
    """Register `adapter` for values of type `kind`; None removes an earlier one."""
    _ADAPTERS.pop(kind, None)
    if adapter is not None:
        _ADAPTERS[kind] = adapter


def registered_adapters() -> List[Tuple[type, Any]]:
    """List the registered types with their adapters, the first registered first."""
    return list(_ADAPTERS.items())


def adapter_for(value: Structure) -> Optional[Any]:
    """Return the adapter registered for `value`: its exact type first, then the first base class."""
    # runs for every value of a call, most often without any adapter
    if not _ADAPTERS or type(value) in _ADAPTERS:
        return _ADAPTERS.get(type(value))
    return next((adapter for kind, adapter in _ADAPTERS.items() if isinstance(value, kind)), None)


def are_equal(one: object, other: object) -> bool:
    """Tell whether two values are equal; arrays and tensors, whose comparison has no truth value, are not.

    >>> are_equal((1, "a"), (1, "a")), are_equal(torch.ones(2), torch.ones(2))
    (True, False)
    """
    try:
        return one is other or bool(one == other)
    except (RuntimeError, TypeError, ValueError):
        return False


def flatten_tensors(value: Structure, *, like: Structure = None) -> List[torch.Tensor]:
    """List the tensors inside `value`, depth first; dictionaries in the key order of `like` where it is given.

    >>> [t.item() for t in flatten_tensors({"a": (torch.tensor(1), "text"), "b": [torch.tensor(2)]})]
    [1, 2]
    """
    found: List[torch.Tensor] = []
    _collect(value, like, found.append)
    return found


def _collect(value: Structure, like: Structure, add: Callable[[torch.Tensor], None]) -> None:
    if isinstance(value, torch.Tensor):
        add(value)
        return
    adapter = adapter_for(value)
    if adapter is not None:
        for tensor in adapter.yieldTensors(value):
            add(tensor)
    elif isinstance(value, (list, tuple)):
        pattern = like if isinstance(like, (list, tuple)) and len(like) == len(value) else [None] * len(value)
        for item, item_like in zip(value, pattern):
            # most items are tensors, and a call for each would be a good part of a small step
            if isinstance(item, torch.Tensor):
                add(item)
            else:
                _collect(item, item_like, add)
    elif isinstance(value, Mapping):
        for key in like if isinstance(like, Mapping) else value:
            _collect(value[key], like[key] if isinstance(like, Mapping) else None, add)
    elif is_record(value):
        # which has the fields of its own class, too
        _collect(read_fields(value), read_fields(like) if type(like) is type(value) else None, add)


def make_call_arguments(batch: Structure) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    """Return the positional and the keyword arguments of a call with `batch`, as loaders give and examples are written.

    >>> make_call_arguments([1, 2]), make_call_arguments({"x": 1}), make_call_arguments(1)
    (((1, 2), {}), ((), {'x': 1}), ((1,), {}))
    """
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


def find_opaque_holder(value: Structure) -> Optional[Any]:
    """Return the first object inside `value` that holds tensors where `flatten_tensors` does not find them, or None.

    >>> find_opaque_holder([{torch.tensor(1)}, {"k": torch.tensor(2)}])
    {tensor(1)}
    """
    if isinstance(value, (torch.Tensor, torch.nn.Module, type)) or adapter_for(value) is not None:
        return None
    if isinstance(value, (Mapping, list, tuple)):
        items = value.values() if isinstance(value, Mapping) else value
        return next((found for found in map(find_opaque_holder, items) if found is not None), None)
    fields = read_fields(value) if is_record(value) else {}
    found = find_opaque_holder(list(fields.values()))
    if found is not None:
        return found
    own = getattr(value, "__dict__", {})
    hidden = list(value) if isinstance(value, (set, frozenset)) else [own[name] for name in own if name not in fields]
    return value if flatten_tensors(hidden) else None


def rebuild(
    structure: Structure, tensors: Iterable[Any], *, replaces: Callable[[torch.Tensor], bool] = lambda _tensor: True
) -> Any:
    """Replace the tensors of `structure` by `tensors`.

    Everything else, and tensors that `replaces` declines, is passed on as the same object. Named tuples are rebuilt
    from their items, subclasses of dict, list and tuple by calling their class.

    >>> rebuild([torch.tensor(1), {"k": torch.tensor(2)}], ["a", "b"])
    ['a', {'k': 'b'}]
    """
    remaining = iter(tensors)
    return _rebuild(
        structure,
        lambda tensor: next(remaining) if replaces(tensor) else tensor,
        lambda adapter, value: adapter.reconstruct(value, remaining),
    )


def outline(structure: Structure, outline_of: Callable[[torch.Tensor], Any]) -> Any:
    """Replace tensors by the results of `outline_of`, except those inside types with an adapter.

    Objects of these types stay the same: an adapter may rebuild them as objects of another type.

    >>> outline((torch.tensor(1), ["text"]), lambda tensor: tensor.dtype)
    (torch.int64, ['text'])
    """
    return _rebuild(structure, outline_of, lambda _adapter, value: value)


def _rebuild(value: Structure, of_tensor: Callable[[torch.Tensor], Any], of_adapted: Callable[[Any, Any], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return of_tensor(value)
    adapter = adapter_for(value)
    if adapter is not None:
        return of_adapted(adapter, value)
    if isinstance(value, (list, tuple)):
        items = [_rebuild(item, of_tensor, of_adapted) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if type(value) is list else type(value)(items)
    if isinstance(value, defaultdict):
        return type(value)(value.default_factory, {k: _rebuild(v, of_tensor, of_adapted) for k, v in value.items()})
    if isinstance(value, Mapping):
        items_of = {key: _rebuild(item, of_tensor, of_adapted) for key, item in value.items()}
        return type(value)(items_of)  # type: ignore[call-arg]
    if is_record(value):
        fields = read_fields(value)
        return replace_fields(value, {name: _rebuild(fields[name], of_tensor, of_adapted) for name in fields})
    return value


def is_record(value: Structure) -> bool:
    """Tell whether `value` is an object of a dataclass, and nothing else that has items or tensors of its own."""
    others = (torch.Tensor, torch.nn.Module, Mapping, list, tuple, type)
    return dataclasses.is_dataclass(value) and not isinstance(value, others)


def field_names(value: Structure) -> Tuple[str, ...]:
    """Return the names of the fields of a named tuple or of a dataclass's object, in order; none for anything else."""
    return tuple(read_fields(value)) if is_record(value) else getattr(value, "_fields", ())


def read_fields(record: Any) -> Dict[str, Any]:
    """Return the fields of a dataclass's object that have a value, by name."""
    names = [field.name for field in dataclasses.fields(record)]
    return {name: getattr(record, name) for name in names if hasattr(record, name)}


def replace_fields(record: _Record, values: Mapping[str, Any]) -> _Record:
    """Copy a dataclass's object with other values in some fields; nothing is computed anew, and it may be frozen."""
    changed = copy.copy(record)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


def replace_item(container: Any, key: Any, item: object) -> Any:
    """Copy a mapping, list, tuple, named tuple or dataclass's object with `item` at `key`.

    Other attributes of a subclass are kept.

    >>> replace_item(("image", 7), -1, 8), replace_item({"image": 1, "label": 7}, "label", 8)
    (('image', 8), {'image': 1, 'label': 8})
    """
    if isinstance(container, Mapping):
        changed: Any = copy.copy(container) if hasattr(container, "__setitem__") else dict(container)
        changed[key] = item
        return changed
    if is_record(container):
        return replace_fields(container, {key: item})
    items = list(container)
    items[key] = item
    return type(container)(*items) if hasattr(container, "_fields") else type(container)(items)


def map_tensors(function: Callable[[torch.Tensor], Any], value: Structure) -> Any:
    """Apply `function` to each tensor inside `value` and rebuild the structure around the results."""
    return rebuild(value, [function(tensor) for tensor in flatten_tensors(value)])
