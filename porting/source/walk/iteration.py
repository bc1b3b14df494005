"""Work out the elements of a value that is gone through, indexed or unpacked.

Loops and assignments use it.
"""

from __future__ import annotations

import ast
from typing import Any, List, Optional, Sequence

from porting.source.facts import Kind, ProgramObjects
from porting.source.library import TENSOR_KINDS
from porting.source.walk.guesses import is_loss_name, name_expression
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Item,
    Object,
    Stream,
    Value,
    join,
    list_constants,
    list_program_objects,
)
from porting.source.walk.walk import Walk

__all__ = ["find_element", "index_value", "list_sources", "unpack_value"]

_LOADERS = (Kind.LOADER, Kind.PORT_LOADER, Kind.DATASET)
_SAME = (Kind.PARAMETERS, Kind.STATE, Kind.DATASET, Kind.OPTIMIZER, Kind.SCHEDULER, Kind.MODULE)


def find_element(walk: Walk, value: Value, node: ast.AST) -> Value:
    """Say what a loop over a value yields; batches are made where the loop stands."""
    return join(*[_find_element_of(walk, item, node) for item in value])


def _find_element_of(walk: Walk, item: Item, node: ast.AST) -> Value:
    if isinstance(item, Stream):
        return item.element
    if not isinstance(item, Object):
        return UNKNOWN
    if item.elements is not None:
        return join(*[walk.store.read(item.elements, key) or UNKNOWN for key in list(item.elements)])
    if item.program_object is None:
        return UNKNOWN
    if item.program_object.kind in _LOADERS:
        return (walk.make(node, Kind.BATCH, name="batch", parts=(item.program_object,)),)
    if item.program_object.kind in TENSOR_KINDS:
        return (walk.derive(node, (item.program_object,), name="element", label="element"),)
    return (item,) if item.program_object.kind in (Kind.PARAMETERS, Kind.STATE, Kind.MODULE) else UNKNOWN


def list_sources(value: Value) -> ProgramObjects:
    """List the loaders and the like that something that is gone through comes of."""
    objects = [one for item in value if isinstance(item, Stream) for one in item.objects]
    return tuple(dict.fromkeys((*objects, *list_program_objects(tuple(i for i in value if not isinstance(i, Stream))))))


def index_value(walk: Walk, value: Value, index: Value, node: ast.Subscript) -> Value:
    """Say what `value[index]` may be."""
    keys = list_constants(index)
    is_slice = isinstance(node.slice, ast.Slice)
    return join(*[_index_item(walk, item, keys, is_slice, node) for item in value])


def _index_item(walk: Walk, item: Item, keys: List[Any], is_slice: bool, node: ast.Subscript) -> Value:
    if isinstance(item, Stream):
        return item.element
    if not isinstance(item, Object):
        return UNKNOWN
    if item.elements is not None:
        if is_slice:
            return (item,)
        return _read_elements(walk, item, keys)
    program_object = item.program_object
    if program_object is None:
        return UNKNOWN
    is_of_datasets = any(isinstance(key, str) for key in keys) or program_object.name.endswith("random_split")
    if program_object.kind is Kind.DATASET and is_of_datasets:
        return (item,)
    if program_object.kind in _LOADERS:
        return (walk.make(node, Kind.BATCH, name="batch", parts=(program_object,)),)
    if program_object.kind in TENSOR_KINDS:
        if program_object.kind is Kind.OUTPUT and any(isinstance(key, str) and is_loss_name(key) for key in keys):
            return (walk.make(node, Kind.LOSS, name=f"[{keys[0]!r}]", parts=(program_object,)),)
        return (walk.derive(node, (program_object,), name="[]"),)
    return (item,) if program_object.kind in (Kind.PARAMETERS, Kind.STATE, Kind.MODULE) else UNKNOWN


def _read_elements(walk: Walk, item: Object, keys: List[Any]) -> Value:
    assert item.elements is not None
    found: List[Value] = []
    for key in keys:
        if isinstance(key, int) and key < 0 and ANY not in item.elements:
            key += len(item.elements)
        value = walk.store.read(item.elements, key) if _is_hashable(key) else None
        if value is not None:
            found.append(value)
    if found and ANY not in item.elements:
        return join(*found)
    if found:
        return join(*found, item.elements[ANY])
    if keys and ANY not in item.elements and not any(isinstance(key, int) for key in keys):
        return UNKNOWN
    return join(*[walk.store.read(item.elements, key) or UNKNOWN for key in list(item.elements)])


def _is_hashable(key: Any) -> bool:
    return isinstance(key, (str, int, float, bytes, bool, type(None)))


def unpack_value(walk: Walk, value: Value, targets: Sequence[ast.expr], node: ast.AST) -> List[Value]:
    """Part a value among the targets of an assignment; a starred one takes a list."""
    starred = next((n for n, target in enumerate(targets) if isinstance(target, ast.Starred)), None)
    return [
        join(*[_unpack_item(walk, item, number, targets, starred) for item in value]) for number in range(len(targets))
    ]


def _unpack_item(walk: Walk, item: Item, number: int, targets: Sequence[ast.expr], starred: Optional[int]) -> Value:
    target = targets[number]
    if isinstance(item, Object) and item.elements is not None:
        if starred is None or number < starred:
            return _read_elements(walk, item, [number])
        rest = walk.make_container(target, label="rest")
        assert rest.elements is not None
        walk.store.add(rest.elements, ANY, find_element(walk, (item,), target))
        return (rest,) if number == starred else find_element(walk, (item,), target)
    if isinstance(item, Object) and item.program_object is not None:
        return _unpack_object(walk, item, target)
    return find_element(walk, (item,), target)


def _unpack_object(walk: Walk, item: Object, target: ast.expr) -> Value:
    program_object = item.program_object
    assert program_object is not None
    if program_object.kind in _SAME:
        return (item,)
    if program_object.kind is Kind.BATCH:
        return (walk.make(target, Kind.BATCH, name="part", parts=(program_object,)),)
    if program_object.kind in TENSOR_KINDS:
        name = name_expression(target).rpartition(".")[2]
        if program_object.kind is Kind.OUTPUT and not walk.collector.is_derived(program_object) and is_loss_name(name):
            return (walk.make(target, Kind.LOSS, name="part", parts=(program_object,)),)
        return (walk.derive(target, (program_object,), name="part"),)
    return find_element(walk, (item,), target)
