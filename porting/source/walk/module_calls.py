"""Calls of modules, ports and criteria: their `forward` is walked, and what it returns is an output or a loss."""

from __future__ import annotations

import ast
from typing import List

from porting.source.facts import Call, Kind, ProgramObject
from porting.source.library import TENSOR_KINDS
from porting.source.walk.attributes import list_wrapped
from porting.source.walk.functions import Arguments, call_function, call_method_of
from porting.source.walk.values import UNKNOWN, Function, Object, Value, join, list_program_objects
from porting.source.walk.walk import Walk

__all__ = ["call_module"]


def call_module(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Call a module, port or criterion."""
    program_object = item.program_object
    assert program_object is not None
    with walk.standing(in_forward=True):
        returned = _run_forward(walk, item, arguments, node, set())
    if program_object.kind is Kind.CRITERION:
        values = [*arguments.values, *arguments.keywords.values()]
        tensors = tuple(part for value in values for part in list_program_objects(value) if part.kind in TENSOR_KINDS)
        loss = walk.make(node, Kind.LOSS, name=program_object.name, parts=(program_object, *tensors), call=call)
        return (loss,)
    if program_object.kind is Kind.PORT:
        return _read_port(walk, program_object, returned, node, call)
    return (
        _lift_values(walk, program_object, returned, node, call)
        if returned
        else _make_output(walk, program_object, node, call)
    )


def _run_forward(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, seen: set) -> Value:
    """Walk the `forward` of a module, or of what it wraps or holds."""
    if item in seen or item.program_object is None:
        return UNKNOWN
    seen.add(item)
    for method in ("forward", "__call__"):
        returned = call_method_of(walk, item, method, arguments, node)
        if returned is not None:
            return returned
    if item.elements is not None:
        return _run_chain(walk, item, arguments, node, seen)
    functions = [part for part in item.variables.get("$function", UNKNOWN) if isinstance(part, Function)]
    results = [call_function(walk, function, arguments, node) for function in functions]
    results.extend(_run_forward(walk, inner, arguments, node, seen) for inner in list_wrapped(walk, item))
    return join(*results)


def _run_chain(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, seen: set) -> Value:
    current, returned = arguments, UNKNOWN
    for key in list(item.elements or ()):
        for part in (item.elements or {}).get(key, UNKNOWN):
            if isinstance(part, Object):
                returned = _run_forward(walk, part, current, node, seen)
                current = Arguments([returned]) if returned else current
    return returned


def _make_output(walk: Walk, program_object: ProgramObject, node: ast.AST, call: Call) -> Value:
    return (walk.make(node, Kind.OUTPUT, name=program_object.name, parts=(program_object,), call=call),)


def _lift_values(walk: Walk, program_object: ProgramObject, returned: Value, node: ast.AST, call: Call) -> Value:
    """Make of what a `forward` returns the outputs and losses of this call, in the same containers."""
    parts: List[Value] = []
    for item in returned:
        if isinstance(item, Object) and item.elements is not None and item.program_object is None:
            parts.append((_lift_container(walk, program_object, item, node, call),))
        else:
            objects = list_program_objects((item,))
            parts.append(_lift_objects(walk, program_object, objects, node, call, label=0))
    return join(*parts)


def _lift_container(walk: Walk, program_object: ProgramObject, item: Object, node: ast.AST, call: Call) -> Object:
    lifted = {
        key: _lift_objects(walk, program_object, list_program_objects(value), node, call, label=key)
        for key, value in (item.elements or {}).items()
    }
    return walk.make_container(node, lifted, label=("lifted", program_object))


def _lift_objects(
    walk: Walk, program_object: ProgramObject, objects: tuple, node: ast.AST, call: Call, *, label: object
) -> Value:
    losses = tuple(part for part in objects if part.kind is Kind.LOSS)
    kind = Kind.LOSS if losses else Kind.OUTPUT
    made = walk.make(node, kind, name=program_object.name, parts=(program_object, *losses), call=call, label=label)
    if made.program_object is not None and not objects:
        # a part of a result of which nothing is known may as well be a number
        walk.guessed.setdefault(made.program_object, True)
    return (made,)


def _is_given_loss(program_object: ProgramObject) -> bool:
    node = program_object.call.node if program_object.call is not None else None
    if node is None:
        return False
    given = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "loss")]
    return any(not isinstance(value, ast.Constant) for value in given)


def _read_port(walk: Walk, program_object: ProgramObject, returned: Value, node: ast.Call, call: Call) -> Value:
    """Say what a port returns: what the module does, and behind it the loss that `to_ipu` was given."""
    lifted = (
        _lift_values(walk, program_object, returned, node, call)
        if returned
        else _make_output(walk, program_object, node, call)
    )
    criteria = tuple(part for part in program_object.parts if part.kind is Kind.CRITERION)
    if not program_object.name.endswith("to_ipu") or not (criteria or _is_given_loss(program_object)):
        return lifted
    loss = walk.make(
        node, Kind.LOSS, name=program_object.name, parts=(program_object, *criteria), call=call, label="loss"
    )
    return (walk.make_container(node, {0: lifted, 1: (loss,)}, label=("port", program_object)),)
