"""Read the attributes of values, of the program's own instances and classes and of other program objects."""

from __future__ import annotations

import ast
from typing import List, Optional

from porting.source.facts import Kind, ProgramObject
from porting.source.library import NAMES, TENSOR_KINDS, find_class_kind, is_host_name
from porting.source.walk.guesses import is_loss_name
from porting.source.walk.values import (
    UNKNOWN,
    Bound,
    Class,
    External,
    Function,
    Item,
    Object,
    Value,
    join,
    list_objects,
)
from porting.source.walk.walk import Walk

__all__ = [
    "bind_function",
    "find_in_class",
    "find_kind_of_class",
    "is_parameter",
    "list_wrapped",
    "read_attribute",
]

_WRAPPING_NAMES = ("module", "model", "_orig_mod")


def read_attribute(walk: Walk, value: Value, name: str, node: ast.AST) -> Value:
    """Say what `value.name` may be; a method comes bound to what it is a method of."""
    return join(*[_read_of_item(walk, item, name, node) for item in value])


def _read_of_item(walk: Walk, item: Item, name: str, node: ast.AST) -> Value:
    if isinstance(item, External):
        return (External(f"{item.name}.{name}"),)
    if isinstance(item, Object):
        return _read_of_object(walk, item, name, node)
    if isinstance(item, Class):
        found = find_in_class(walk, item, name)
        if found is None:
            return (Bound((item,), name),)
        return join(*[bind_function(part, (item,), through_class=True) for part in found])
    return (Bound((item,), name),)


def _read_of_object(walk: Walk, item: Object, name: str, node: ast.AST) -> Value:
    value = walk.store.read(item.variables, name)
    if value is not None:
        return value
    if item.definition is not None:
        found = find_in_class(walk, item.definition, name)
        if found is not None:
            return join(*[bind_function(part, (item,)) for part in found])
    if item.program_object is not None:
        inner = walk.store.read(item.elements, name) if item.elements else None
        return _read_of_program_object(walk, item, name, node) if inner is None else inner
    return (Bound((item,), name),) if item.elements is not None or item.definition is not None else UNKNOWN


def _read_of_program_object(walk: Walk, item: Object, name: str, node: ast.AST) -> Value:
    program_object = item.program_object
    assert program_object is not None
    if program_object.kind in TENSOR_KINDS:
        if is_host_name(name) and name not in NAMES["tensor host methods"]:
            return UNKNOWN
        if is_loss_name(name) and program_object.kind is Kind.OUTPUT:
            return (walk.make(node, Kind.LOSS, name=f".{name}", parts=(program_object,)),)
        return (Bound((item,), name),)
    if program_object.kind in (Kind.MODULE, Kind.PORT) and name in _WRAPPING_NAMES:
        inner = list_wrapped(walk, item)
        if inner:
            return tuple(inner)
    if program_object.kind is Kind.OPTIONS and name[:1].isupper():
        return (item,)
    if program_object.kind is Kind.OPTIMIZER and name == "param_groups":
        return (walk.make(node, Kind.PARAMETERS, name=".param_groups", parts=(program_object,)),)
    if program_object.kind in (Kind.LOADER, Kind.PORT_LOADER):
        wanted = {"dataset": Kind.DATASET, "sampler": Kind.SAMPLER, "batch_sampler": Kind.SAMPLER}.get(name)
        parts = [walk.wrap(part) for part in program_object.parts if part.kind is wanted]
        if parts:
            return tuple(parts)
    return (Bound((item,), name),)


def read_bound(walk: Walk, value: Value, node: ast.AST) -> Value:
    """Say what an attribute is that is read and not called: a tensor's is a tensor, a module's a module."""
    parts: List[Value] = []
    for item in value:
        if not isinstance(item, Bound):
            parts.append((item,))
            continue
        weights = [
            part
            for part in list_objects(item.receiver, *TENSOR_KINDS, Kind.PARAMETERS)
            if part.program_object and is_parameter(part.program_object)
        ]
        if item.name in ("data", "grad"):
            _record_touched(walk, item, node)
        if item.name == "data" and weights:
            parts.append(tuple(weights))
            continue
        for tensor in list_objects(item.receiver, *TENSOR_KINDS):
            assert tensor.program_object is not None
            parts.append((walk.derive(node, (tensor.program_object,), name=f".{item.name}", label=item.name),))
        for module in list_objects(item.receiver, Kind.MODULE):
            parts.append(_read_of_module(walk, module, item, node))
        if not list_objects(item.receiver, *TENSOR_KINDS, Kind.MODULE):
            parts.append((item,))
    return join(*parts)


def is_parameter(program_object: ProgramObject) -> bool:
    """Tell whether a program object is one that an optimizer trains: made as such, or a module's."""
    return program_object.kind is Kind.PARAMETERS or program_object.name.endswith(".Parameter")


def _record_touched(walk: Walk, item: Bound, node: ast.AST) -> None:
    """Record that the program wants the gradient, or the memory, of weights or of a tensor."""
    objects = tuple(
        part.program_object
        for part in list_objects(item.receiver, *TENSOR_KINDS, Kind.PARAMETERS)
        if part.program_object
    )
    if objects and not walk.asks_nothing:
        walk.record_statement(node, objects, asks=item.name)


_NO_MODULES = frozenset({"training", "device", "config", "dtype", "name", "hparams", "num_features", "in_features"})


def _read_of_module(walk: Walk, module: Object, bound: Bound, node: ast.AST) -> Value:
    assert module.program_object is not None
    if bound.name in ("weight", "bias"):
        return (walk.make(node, Kind.PARAMETERS, name=f".{bound.name}", parts=(module.program_object,)),)
    if module.definition is not None or bound.name in _NO_MODULES or "_features" in bound.name:
        return (bound,)
    return (walk.make(node, Kind.MODULE, name=f".{bound.name}", parts=(module.program_object,)),)


def list_wrapped(walk: Walk, item: Object) -> List[Object]:
    """List the modules that a wrapper or a port was made of."""
    if item.program_object is None or item.definition is not None:
        return []
    return [walk.wrap(part) for part in item.program_object.parts if part.kind in (Kind.MODULE, Kind.PORT)]


def bind_function(item: Item, receiver: Value, *, through_class: bool = False) -> Value:
    """Bind a function that was found in a class to the instance, or the class, that it was read from."""
    if not isinstance(item, Function) or item.form == "staticmethod" or item.owner is None:
        return (item,)
    if item.form == "classmethod":
        receiver = tuple(part.definition or part if isinstance(part, Object) else part for part in receiver)
    elif through_class:
        return (item,)
    return (Function(**{**vars(item), "receiver": receiver}),)


def find_in_class(walk: Walk, definition: Class, name: str, *, above: bool = False) -> Optional[Value]:
    """Find a name in a class of the program's and the classes that it derives from; None where no class has it."""
    for cls in definition.line:
        if above and cls is definition:
            continue
        value = walk.store.read(cls.variables, name)
        if value is not None:
            return value
    return None


def find_kind_of_class(definition: Class) -> Optional[Kind]:
    """Find what instances of a class of the program's are, as far as a port cares."""
    bases = [value for cls in definition.line for value in cls.bases]
    names = (item.name for value in bases for item in value if isinstance(item, External))
    kind = next(filter(None, map(find_class_kind, names)), None)
    if kind is None and not all(bases) and "forward" in definition.variables:
        kind = Kind.MODULE
    if kind is Kind.MODULE and _is_named_as_loss(definition):
        return Kind.CRITERION
    return kind


def _is_named_as_loss(definition: Class) -> bool:
    name = definition.node.name
    return is_loss_name(name) and "With" not in name and not name.endswith(("Model", "Net", "Module"))
