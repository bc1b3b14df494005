"""Calls of methods of program objects: of tensors, modules, ports, optimizers, loaders and containers."""

from __future__ import annotations

import ast

from porting.source.facts import Call, Kind, ProgramObjects
from porting.source.library import NAMES, TENSOR_KINDS, find_method_kind, is_host_name
from porting.source.walk.functions import Arguments, call_function
from porting.source.walk.iteration import find_element
from porting.source.walk.module_calls import call_module
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Object,
    Stream,
    Value,
    join,
    list_constants,
    list_functions,
    list_program_objects,
)
from porting.source.walk.walk import Walk

__all__ = ["call_method", "pass_on", "update_elements"]

_MODULES = (Kind.MODULE, Kind.PORT, Kind.CRITERION)


def call_method(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Call a method that the program does not define; functions that it is given are walked, as a closure's."""
    for function in list_functions(arguments.values) if item.program_object is not None else ():
        given = Arguments([(item,)]) if name == "apply" else Arguments(are_unknown=True)
        call_function(walk, function, given, node)
    if item.program_object is None:
        return _call_of_container(walk, item, name, arguments, node) if item.elements is not None else UNKNOWN
    if item.program_object.kind in TENSOR_KINDS:
        return _call_of_tensor(walk, item, name, arguments, node, call)
    if item.program_object.kind in _MODULES:
        return _call_of_module(walk, item, name, arguments, node, call)
    return _call_of_other(walk, item, name, arguments, node, call)


def _list_tensors(arguments: Arguments) -> ProgramObjects:
    values = [*arguments.values, *arguments.keywords.values()]
    return tuple(one for value in values for one in list_program_objects(value) if one.kind in TENSOR_KINDS)


def _call_of_tensor(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    program_object = item.program_object
    assert program_object is not None
    if name == "backward":
        walk.collector.mark_loss(program_object)
    if name in ("items", "values"):
        return _go_through_values(walk, find_element(walk, (item,), node), node, pairs=name == "items")
    if is_host_name(name):
        return UNKNOWN
    return (walk.derive(node, (program_object, *_list_tensors(arguments)), name=f".{name}", call=call),)


def _call_of_module(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    program_object = item.program_object
    assert program_object is not None
    if name in ("forward", "__call__", "compile") and (name != "compile" or program_object.kind is Kind.PORT):
        outputs = call_module(walk, item, arguments, node, call)
        return UNKNOWN if name == "compile" else outputs
    if name in ("train", "eval"):
        is_off = name == "train" and arguments.values and False in list_constants(arguments.values[0])
        walk.set_mode(evaluation=name == "eval" or bool(is_off))
    if name in NAMES["returning self"]:
        return (item,)
    if name in ("register_buffer", "register_parameter"):
        return _register(walk, item, arguments, node, call)
    if name in ("append", "extend", "add_module", "register_module", "insert") and item.elements is not None:
        return _add_elements(walk, item, name, arguments, node)
    kind = find_method_kind(program_object.kind, name)
    if name == "manual_backward":
        for part in _list_tensors(arguments):
            walk.collector.mark_loss(part)
    elif kind is None and _list_tensors(arguments) and name not in NAMES["returning none"]:
        kind = Kind.OUTPUT
    if kind is None:
        return UNKNOWN
    # a call of an executor is none of a method
    full = f"{program_object.name}.{name}" if kind is Kind.PORT else f".{name}"
    return (walk.make(node, kind, name=full, parts=(program_object, *_list_parts(kind, arguments)), call=call),)


def _register(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Keep a buffer or a parameter as an attribute, of which nothing else may be known than that it is a tensor."""
    given = arguments.values[1] if len(arguments.values) > 1 else join(*arguments.keywords.values())
    for name in list_constants(join(*arguments.values[:1])):
        made: Value = (walk.make(node, Kind.TENSOR, name=f".{name}", call=call),)
        walk.store.add(item.variables, name, given or made)
    return UNKNOWN


def _list_parts(kind: Kind, arguments: Arguments) -> ProgramObjects:
    """List what a port's loader, or its schedule, is made of."""
    if kind not in (Kind.PORT_LOADER, Kind.SCHEDULER):
        return ()
    values = [*arguments.values, *arguments.keywords.values()]
    return tuple(one for value in values for one in list_program_objects(value))


def _call_of_other(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    program_object = item.program_object
    assert program_object is not None
    if name in NAMES["of modules alone"]:
        # of a class that cannot be read, or a whole module that was loaded
        walk.collector.become(program_object, Kind.MODULE)
    if program_object.kind is Kind.MODULE:
        return _call_of_module(walk, item, name, arguments, node, call)
    kind = find_method_kind(program_object.kind, name)
    if kind is Kind.LOSS:
        return _scale_loss(walk, name, arguments, node, call)
    if kind is not None:
        return (walk.make(node, kind, name=f".{name}", parts=(program_object,), call=call),)
    if program_object.kind is Kind.PARAMETERS and (name.endswith("_") or name == "detach"):
        return (item,)
    if program_object.name.startswith("torch.distributions."):
        parts = tuple(part for part in (*program_object.parts, *_list_tensors(arguments)) if part.kind in TENSOR_KINDS)
        return (walk.derive(node, parts, name=f".{name}", call=call),) if parts else UNKNOWN
    return _call_of_helper(walk, item, name, arguments, node)


def _scale_loss(walk: Walk, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    parts = _list_tensors(arguments)
    for part in parts:
        walk.collector.mark_loss(part)
    return (walk.derive(node, parts, name=f".{name}", call=call),) if parts else UNKNOWN


def _call_of_helper(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call) -> Value:
    """Call a method of what trains for the program, or of what only holds something."""
    program_object = item.program_object
    assert program_object is not None
    if name in NAMES["passing on"]:
        return pass_on(walk, arguments, node)
    if name == "backward":
        for part in _list_tensors(arguments):
            walk.collector.mark_loss(part)
    if name.startswith("parse_"):
        return (walk.make(node, Kind.OTHER, name=f"{program_object.name}.{name}"),)
    returns_self = program_object.kind is Kind.OPTIONS or name in NAMES["returning self"] or name == "__enter__"
    return (item,) if returns_self else UNKNOWN


def pass_on(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    """Give back what was given, as `accelerator.prepare` does."""
    if len(arguments.values) <= 1:
        return join(*arguments.values)
    return (walk.make_container(node, dict(enumerate(arguments.values))),)


def _add_elements(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call) -> Value:
    assert item.elements is not None
    if arguments.values:
        value = arguments.values[-1]
        if name in ("extend", "update"):
            value = find_element(walk, value, node)
        walk.store.add(item.elements, ANY, value)
        if item.program_object is not None:
            walk.collector.add_parts(item.program_object, list_program_objects(value))
    return UNKNOWN


def _call_of_container(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.Call) -> Value:
    assert item.elements is not None
    if name in ("append", "extend", "insert", "add", "appendleft"):
        return _add_elements(walk, item, name, arguments, node)
    if name == "update":
        return update_elements(walk, item, arguments)
    element = find_element(walk, (item,), node)
    if name in ("get", "pop", "setdefault", "popleft", "popitem"):
        keys = list_constants(arguments.values[0]) if arguments.values else []
        exact = join(*[item.elements.get(key, UNKNOWN) for key in keys if isinstance(key, (str, int))])
        default = join(*arguments.values[1:2])
        return join(exact, default) if keys else join(element, default)
    if name in ("values", "items"):
        return _go_through_values(walk, element, node, pairs=name == "items")
    return (item,) if name in ("copy", "__iter__", "to") else UNKNOWN


def _go_through_values(walk: Walk, element: Value, node: ast.Call, *, pairs: bool) -> Value:
    """Say what a loop over a dictionary's values yields, or over pairs of its keys and them."""
    objects = list_program_objects(element)
    if pairs:
        pair = walk.make_container(node, label="pair")
        assert pair.elements is not None
        pair.elements.update({0: UNKNOWN, 1: join(pair.elements.get(1, UNKNOWN), element)})
        element = (pair,)
    return (Stream(element, objects),)


def update_elements(walk: Walk, item: Object, arguments: Arguments) -> Value:
    """Write what a dictionary is given into the elements of `item`, as `update` does."""
    assert item.elements is not None
    for value in arguments.values:
        for part in value:
            if isinstance(part, Object) and part.elements is not None:
                for key, element in list(part.elements.items()):
                    walk.store.write(item.elements, key, element)
    for name, value in arguments.keywords.items():
        walk.store.write(item.elements, name, value)
    return UNKNOWN
