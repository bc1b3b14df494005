"""Calls of modules, ports and criteria: their `forward` is walked, and what it returns is an output or a loss."""

from __future__ import annotations

import ast
from typing import List

from porting.source.facts import Call, Kind, Thing
from porting.source.library import TENSOR_KINDS
from porting.source.walk.attributes import list_wrapped
from porting.source.walk.functions import Arguments, call_function, call_method_of
from porting.source.walk.values import UNKNOWN, Function, Object, Value, join, list_things
from porting.source.walk.walk import Walk

__all__ = ["call_module"]


def call_module(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Call a module, port or criterion."""
    thing = item.thing
    assert thing is not None
    with walk.standing(in_forward=True):
        returned = _run_forward(walk, item, arguments, node, set())
    if thing.kind is Kind.CRITERION:
        values = [*arguments.values, *arguments.keywords.values()]
        tensors = tuple(part for value in values for part in list_things(value) if part.kind in TENSOR_KINDS)
        loss = walk.make(node, Kind.LOSS, name=thing.name, parts=(thing, *tensors), call=call)
        return (loss,)
    if thing.kind is Kind.PORT:
        return _read_port(walk, thing, returned, node, call)
    return _lift_values(walk, thing, returned, node, call) if returned else _make_output(walk, thing, node, call)


def _run_forward(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, seen: set) -> Value:
    """Walk the `forward` of a module, or of what it wraps or holds."""
    if item in seen or item.thing is None:
        return UNKNOWN
    seen.add(item)
    for method in ("forward", "__call__"):
        returned = call_method_of(walk, item, method, arguments, node)
        if returned is not None:
            return returned
    if item.elements is not None:
        return _run_chain(walk, item, arguments, node, seen)
    functions = [part for part in item.cells.get("$function", UNKNOWN) if isinstance(part, Function)]
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


def _make_output(walk: Walk, thing: Thing, node: ast.AST, call: Call) -> Value:
    return (walk.make(node, Kind.OUTPUT, name=thing.name, parts=(thing,), call=call),)


def _lift_values(walk: Walk, thing: Thing, returned: Value, node: ast.AST, call: Call) -> Value:
    """Make of what a `forward` returns the outputs and losses of this call, in the same containers."""
    parts: List[Value] = []
    for item in returned:
        if isinstance(item, Object) and item.elements is not None and item.thing is None:
            parts.append((_lift_container(walk, thing, item, node, call),))
        else:
            things = list_things((item,))
            parts.append(_lift_things(walk, thing, things, node, call, label=0))
    return join(*parts)


def _lift_container(walk: Walk, thing: Thing, item: Object, node: ast.AST, call: Call) -> Object:
    lifted = {
        key: _lift_things(walk, thing, list_things(value), node, call, label=key)
        for key, value in (item.elements or {}).items()
    }
    return walk.make_container(node, lifted, label=("lifted", thing))


def _lift_things(walk: Walk, thing: Thing, things: tuple, node: ast.AST, call: Call, *, label: object) -> Value:
    losses = tuple(part for part in things if part.kind is Kind.LOSS)
    kind = Kind.LOSS if losses else Kind.OUTPUT
    made = walk.make(node, kind, name=thing.name, parts=(thing, *losses), call=call, label=label)
    if made.thing is not None and not things:
        # a part of a result of which nothing is known may as well be a number
        walk.guessed.setdefault(made.thing, True)
    return (made,)


def _is_given_loss(thing: Thing) -> bool:
    node = thing.call.node if thing.call is not None else None
    if node is None:
        return False
    given = [*node.args[1:2], *(keyword.value for keyword in node.keywords if keyword.arg == "loss")]
    return any(not isinstance(value, ast.Constant) for value in given)


def _read_port(walk: Walk, thing: Thing, returned: Value, node: ast.Call, call: Call) -> Value:
    """Say what a port returns: what the module does, and behind it the loss that `to_ipu` was given."""
    lifted = _lift_values(walk, thing, returned, node, call) if returned else _make_output(walk, thing, node, call)
    criteria = tuple(part for part in thing.parts if part.kind is Kind.CRITERION)
    if not thing.name.endswith("to_ipu") or not (criteria or _is_given_loss(thing)):
        return lifted
    loss = walk.make(node, Kind.LOSS, name=thing.name, parts=(thing, *criteria), call=call, label="loss")
    return (walk.make_container(node, {0: lifted, 1: (loss,)}, label=("port", thing)),)
