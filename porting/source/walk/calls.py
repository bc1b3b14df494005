"""Work out what is called, on what and with what, and make a fact of each call.

What a call returns is worked out by what is called.
"""

from __future__ import annotations

import ast
from typing import List, Tuple

from porting.source.facts import Call, Kind, ProgramObject, ProgramObjects
from porting.source.library import (
    NAMES,
    TENSOR_KINDS,
    find_asking,
    is_known_library,
    list_result_kinds,
)
from porting.source.walk.attributes import bind_function, find_in_class, read_attribute
from porting.source.walk.functions import Arguments, call_function, call_method_of, find_instance, instantiate_class
from porting.source.walk.guesses import is_loss_name
from porting.source.walk.host_reads import ask_call
from porting.source.walk.iteration import find_element
from porting.source.walk.library_calls import call_library
from porting.source.walk.method_calls import call_method
from porting.source.walk.module_calls import call_module
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Bound,
    Class,
    External,
    Function,
    Item,
    Object,
    Partial,
    Value,
    join,
    list_program_objects,
)
from porting.source.walk.walk import Walk

__all__ = ["call_value", "evaluate_call"]

_CALLED = (Kind.MODULE, Kind.PORT, Kind.CRITERION)


def evaluate_call(walk: Walk, node: ast.Call) -> Value:
    """Record a call and say what it may return."""
    receiver, callee = _find_callee(walk, node.func)
    arguments = _evaluate_arguments(walk, node)
    if isinstance(node.func, ast.Attribute) and not is_known(callee):
        callee = _find_by_method(walk, node.func.attr, node) or callee
    return call_value(walk, callee, arguments, node, receiver=receiver)


def _find_callee(walk: Walk, node: ast.expr) -> Tuple[Value, Value]:
    """Say on what a method is called, and what may be called."""
    if not isinstance(node, ast.Attribute):
        return UNKNOWN, walk.evaluate(node)
    if _is_super(node.value):
        return _find_above(walk, node.attr)
    receiver = walk.evaluate(node.value)
    return receiver, read_attribute(walk, receiver, node.attr, node)


def is_known(callee: Value) -> bool:
    """Tell whether something is known of what is called, beyond a guess of what the receiver is."""
    return not all(isinstance(item, Bound) and all(map(_is_guessed, item.receiver)) for item in callee)


def _is_guessed(item: Item) -> bool:
    return (
        isinstance(item, Object)
        and item.program_object is not None
        and item.program_object.call is None
        and item.definition is None
    )


_MOST_CLASSES = 2


def _find_by_method(walk: Walk, name: str, node: ast.AST) -> Value:
    """Find the method where nothing tells the object, but only a class or two of the program's define it."""
    if name in _COMMON_METHODS or name.startswith("__"):
        return UNKNOWN
    owners = walk.methods.get(name, [])
    if not 0 < len(owners) <= _MOST_CLASSES:
        return UNKNOWN
    instances = [find_instance(walk, owner) for owner in owners]
    return join(*[read_attribute(walk, (instance,), name, node) for instance in instances])


_COMMON_METHODS = NAMES["common methods"] | NAMES["returning self"] | NAMES["tensor host methods"]
_COMMON_METHODS |= frozenset({*dir(list), *dir(dict), *dir(str), *dir(set)})


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _find_above(walk: Walk, name: str) -> Tuple[Value, Value]:
    """Find a method in the classes above the one whose method is being walked."""
    function = walk.frame.function
    if function is None or function.owner is None or function.receiver is None:
        return UNKNOWN, UNKNOWN
    found = find_in_class(walk, function.owner, name, above=True)
    if found is None:
        return function.receiver, (Bound(function.receiver, name),)
    return function.receiver, join(*[bind_function(item, function.receiver) for item in found])


def _evaluate_arguments(walk: Walk, node: ast.Call) -> Arguments:
    arguments = Arguments()
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            _spread_elements(walk, walk.evaluate(argument.value), arguments, argument)
        else:
            arguments.values.append(walk.evaluate(argument))
    for keyword in node.keywords:
        value = walk.evaluate(keyword.value)
        if keyword.arg is not None:
            arguments.keywords[keyword.arg] = value
        else:
            _spread_keywords(walk, value, arguments, node)
    return arguments


def _spread_elements(walk: Walk, value: Value, arguments: Arguments, node: ast.AST) -> None:
    """Give the elements of a sequence one by one where they are known, else for any parameter."""
    if len(value) == 1 and isinstance(value[0], Object) and value[0].elements is not None:
        elements = value[0].elements
        if ANY not in elements and all(isinstance(key, int) for key in elements):
            arguments.values.extend(elements[key] for key in sorted(elements))
            return
    arguments.rest = join(arguments.rest, find_element(walk, value, node))
    arguments.has_rest = True


def _spread_keywords(walk: Walk, value: Value, arguments: Arguments, node: ast.AST) -> None:
    for item in value:
        if isinstance(item, Object) and item.elements is not None:
            named = {key: element for key, element in item.elements.items() if isinstance(key, str) and key != ANY}
            arguments.keywords.update(named)
            if ANY not in item.elements:
                continue
        arguments.rest = join(arguments.rest, find_element(walk, (item,), node))
        arguments.has_rest = True


def call_value(walk: Walk, callee: Value, arguments: Arguments, node: ast.Call, *, receiver: Value = UNKNOWN) -> Value:
    """Record a call of any of these values and say what it may return."""
    names = [name for name in map(_name_item, callee) if name] or [_name_by_source(node.func)]
    callables = tuple([one for item in callee for one in _list_receivers(item)])
    described = [_describe_argument(walk, value, node) for value in arguments.values]
    call = walk.record_call(
        node,
        name=names[0],
        receiver=callables or list_program_objects(receiver),
        arguments=(*described, list_program_objects(arguments.rest)) if arguments.rest else tuple(described),
        keywords={name: _describe_argument(walk, value, node) for name, value in arguments.keywords.items()},
    )
    for name in filter(find_asking, names):
        ask_call(walk, name, receiver, arguments, node)
    result = join(*[_call_item(walk, item, arguments, node, call) for item in callee])
    walk.collector.add_results(call, list_program_objects(result))
    return result


def _name_by_source(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f".{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _name_item(item: Item) -> str:
    if isinstance(item, Function):
        return item.name if item.receiver is None else f".{getattr(item.node, 'name', '')}"
    if isinstance(item, (External, Class)):
        return item.name
    if isinstance(item, Object):
        return item.program_object.name if item.program_object is not None else getattr(item.definition, "name", "")
    if isinstance(item, Bound):
        return f".{item.name}"
    return _name_item(item.function[0]) if isinstance(item, Partial) and item.function else ""


def _list_receivers(item: Item) -> ProgramObjects:
    """List the objects that are called, or whose method is."""
    if isinstance(item, Object) and item.program_object is not None:
        return (item.program_object,)
    if isinstance(item, Bound):
        return list_program_objects(item.receiver)
    if isinstance(item, Function) and item.receiver:
        return tuple(
            part.program_object
            for part in item.receiver
            if isinstance(part, Object) and part.program_object is not None
        )
    return ()


def _describe_argument(walk: Walk, value: Value, node: ast.Call) -> ProgramObjects:
    """List the objects of an argument; a function that returns a loss is a criterion."""
    objects = list_program_objects(value)
    for item in value:
        if isinstance(item, Partial):
            objects += _describe_argument(walk, item.function, node)
        elif isinstance(item, External) and list_result_kinds(item.name)[:1] == (Kind.LOSS,):
            objects += (_make_criterion(walk, item.name, node),)
        elif isinstance(item, Function) and is_loss_name(getattr(item.node, "name", "")):
            objects += (_make_criterion(walk, item.name, node),)
    return objects


def _make_criterion(walk: Walk, name: str, node: ast.Call) -> ProgramObject:
    return walk.collector.make_object(("criterion", name), Kind.CRITERION, name=name, place=walk.place_of(node))


def _call_item(walk: Walk, item: Item, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    if isinstance(item, Function):
        return _call_own(walk, item, arguments, node, call)
    if isinstance(item, Class):
        return (instantiate_class(walk, item, arguments, node, call),)
    if isinstance(item, External):
        return call_library(walk, item.name, arguments, node, call)
    if isinstance(item, Partial):
        values = [*item.arguments, *arguments.values]
        keywords = {**item.keywords, **arguments.keywords}
        merged = Arguments(values, keywords, arguments.rest, arguments.has_rest)
        return join(*[_call_item(walk, part, merged, node, call) for part in item.function])
    if isinstance(item, Object):
        return _call_object(walk, item, arguments, node, call)
    if isinstance(item, Bound):
        return _call_bound(walk, item, arguments, node, call)
    return UNKNOWN


def _call_own(walk: Walk, function: Function, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Call a function of the program's; one that makes a number of outputs makes it here, in the eyes of a reader."""
    if _is_forward(function):
        receivers = [item for item in function.receiver or () if isinstance(item, Object) and item.program_object]
        return join(*[call_module(walk, item, arguments, node, call) for item in receivers])
    result = call_function(walk, function, arguments, node)
    if walk.in_forward:
        return result
    objects = list_program_objects(result)
    derived = tuple(one for one in objects if walk.collector.is_derived(one) or one.kind is Kind.LOSS)
    is_one_tensor = (
        len(result) == len(objects) == len(derived) and bool(objects) and all(map(_is_program_object, result))
    )
    if not is_one_tensor:
        return result
    made = walk.derive(node, derived, name=function.name, call=call)
    if is_loss_name(getattr(function.node, "name", "")) and made.program_object is not None:
        walk.collector.mark_loss(made.program_object)
    return (made,)


def _is_program_object(item: Item) -> bool:
    return isinstance(item, Object) and item.program_object is not None


def _is_forward(function: Function) -> bool:
    receivers = function.receiver or ()
    is_module = any(
        isinstance(item, Object) and item.program_object and item.program_object.kind in _CALLED for item in receivers
    )
    return is_module and getattr(function.node, "name", "") == "forward"


def _call_object(walk: Walk, item: Object, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    if item.program_object is not None and item.program_object.kind in _CALLED:
        return call_module(walk, item, arguments, node, call)
    returned = call_method_of(walk, item, "__call__", arguments, node)
    if returned is not None:
        return returned
    given = [one for value in arguments.values for one in list_program_objects(value)]
    if (
        item.program_object is not None
        and _is_strange(item.program_object)
        and any(one.kind in TENSOR_KINDS for one in given)
    ):
        # a class that cannot be read, whose instance computes something of tensors
        walk.collector.become(item.program_object, Kind.MODULE)
        return call_module(walk, item, arguments, node, call) if item.program_object.kind in _CALLED else UNKNOWN
    return UNKNOWN


def _is_strange(program_object: ProgramObject) -> bool:
    return program_object.kind is Kind.OTHER and not is_known_library(program_object.name)


def _call_bound(walk: Walk, item: Bound, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    results: List[Value] = []
    for receiver in item.receiver:
        if isinstance(receiver, Object):
            results.append(call_method(walk, receiver, item.name, arguments, node, call))
        elif isinstance(receiver, Class) and item.name == "apply":
            tensors = tuple(
                t for value in arguments.values for t in list_program_objects(value) if t.kind in TENSOR_KINDS
            )
            if tensors:
                results.append((walk.derive(node, tensors, name=f"{receiver.name}.apply", call=call),))
        elif isinstance(receiver, Class) and item.name.startswith(("from_pretrained", "load_from_checkpoint")):
            results.append((instantiate_class(walk, receiver, Arguments(has_rest=True), node, call),))
    return join(*results)
