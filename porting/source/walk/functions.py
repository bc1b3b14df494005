"""Calls of the program's own functions and classes: their bodies are walked with what they are given."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Dict, List, Optional, Union

from porting.source.facts import Call, Kind
from porting.source.files import list_statements
from porting.source.walk.attributes import (
    bind_function,
    find_in_class,
    find_kind_of_class,
    is_parameter,
)
from porting.source.walk.guesses import guess_kind, guess_kind_by_name
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Class,
    Constant,
    Function,
    Object,
    Stream,
    Value,
    join,
    list_program_objects,
)
from porting.source.walk.walk import Flow, Frame, Walk

__all__ = ["Arguments", "call_function", "call_method_of", "evaluate_defaults", "find_instance", "instantiate_class"]

_DEEPEST = 24
_NONE = Constant.of(None)
_MOST_FORWARD_WALKS = 3


@dataclass
class Arguments:
    """What a call gives: by position, by name, and what more a star may bring."""

    values: List[Value] = field(default_factory=list)
    keywords: Dict[str, Value] = field(default_factory=dict)
    rest: Value = UNKNOWN
    """What `*` or `**` may bring for any parameter that is not given."""
    has_rest: bool = False
    are_unknown: bool = False
    """Whether nobody knows what is given: the function is called by a library, or by nobody."""


def call_function(walk: Walk, function: Function, arguments: Arguments, node: ast.AST) -> Value:
    """Walk a function of the program's; return what it may return.

    A function that calls itself, or was walked very often, gives what it gave before.
    """
    body = function.node
    known = walk.results.get(body, UNKNOWN)
    times = walk.walks.get(body, 0)
    is_running = sum(frame.function is not None and frame.function.node is body for frame in walk.frames)
    if is_running > 1 or len(walk.frames) > _DEEPEST or (times and _is_enough(walk, times)):
        return known
    walk.walks[body] = times + 1
    walk.collector.enter(None if walk.frame.function is None else walk.frame.function.node, node, body)
    frame = Frame(
        unit=function.unit,
        module=function.module,
        variables={},
        name=function.name,
        scopes=function.scopes,
        # of what happens in a forward, rules do not ask on which way it was called
        key=0 if walk.in_forward else walk.extend_key(node, body),
        function=function,
    )
    without = walk.without_gradients or function.without_gradients
    with walk.inside(frame, without_gradients=without, loop_exits=[], guards=walk.guards, flow=walk.flow):
        _bind_parameters(walk, function, arguments)
        result = _run_body(walk, body, frame)
    walk.results[body] = join(result, known)
    return result


def _is_enough(walk: Walk, times: int) -> bool:
    most = min(walk.most_walks, _MOST_FORWARD_WALKS) if walk.in_forward else walk.most_walks
    return times >= most or walk.num_steps > walk.most_steps


def _run_body(walk: Walk, body: Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda], frame: Frame) -> Value:
    if isinstance(body, ast.Lambda):
        return walk.evaluate(body.body)
    walk.flow = Flow.ON
    walk.run(body.body)
    for writes in frame.exits:
        for scope, name, value in writes.values():
            if scope is not frame.variables and value:
                walk.store.add(scope, name, value)
    if frame.yielded:
        element = join(*frame.yielded)
        return (Stream(element, list_program_objects(element)),)
    return join(*frame.returned)


def _bind_parameters(walk: Walk, function: Function, arguments: Arguments) -> None:
    spec = function.node.args
    values = list(arguments.values)
    if function.receiver is not None:
        values.insert(0, function.receiver)
    keywords = dict(arguments.keywords)
    positional = [*getattr(spec, "posonlyargs", []), *spec.args]
    for number, parameter in enumerate(positional):
        given: Optional[Value] = values[number] if number < len(values) else keywords.pop(parameter.arg, None)
        _bind_parameter(walk, function, parameter, given, arguments)
    for parameter in spec.kwonlyargs:
        _bind_parameter(walk, function, parameter, keywords.pop(parameter.arg, None), arguments)
    if spec.vararg is not None:
        _bind_rest(walk, spec.vararg, dict(enumerate(values[len(positional) :])), arguments)
    if spec.kwarg is not None:
        _bind_rest(walk, spec.kwarg, keywords, arguments)


def _bind_rest(walk: Walk, parameter: ast.arg, values: Dict, arguments: Arguments) -> None:
    rest = {ANY: arguments.rest} if arguments.has_rest else {}
    container = walk.make_container(parameter, {**values, **rest}, anew=True)
    walk.store.write(walk.frame.variables, parameter.arg, (container,))


def _bind_parameter(
    walk: Walk, function: Function, parameter: ast.arg, given: Optional[Value], arguments: Arguments
) -> None:
    name = parameter.arg
    if given is None and arguments.has_rest:
        given = arguments.rest
    if given is None:
        given = function.defaults.get(name, UNKNOWN)
        if arguments.are_unknown and not list_program_objects(given):
            given = UNKNOWN
    if not given or all(item == _NONE for item in given):
        # a default of None says that there may be none
        given = join(given, _guess_parameter(walk, function, parameter, may_be_tensor=not given))
    walk.store.write(walk.frame.variables, name, given)


def _guess_parameter(walk: Walk, function: Function, parameter: ast.arg, *, may_be_tensor: bool) -> Value:
    name = parameter.arg
    by_use = guess_kind(walk.find_uses(function.node), name)
    kind = by_use or guess_kind_by_name(name)
    is_guess = by_use is None and kind is not None
    if kind is None and may_be_tensor and name != "self" and _takes_batch(walk, function, parameter):
        kind = Kind.TENSOR
    if kind is None or name in ("self", "cls"):
        return UNKNOWN
    key = (parameter, "guess", kind)
    made = walk.collector.make_object(key, kind, name=name, place=walk.place_of(parameter), is_guess=is_guess)
    if kind is Kind.TENSOR:
        walk.guessed[made] = parameter not in function.node.args.args[1:2]
    return (walk.wrap(made),)


def _takes_batch(walk: Walk, function: Function, parameter: ast.arg) -> bool:
    """Tell whether a parameter is a `forward`'s that is called from outside: its tensors come with the batch."""
    if not walk.in_forward or function.owner is None or not _is_forward(function):
        return False
    if any(frame.function is not None and _is_forward(frame.function) for frame in walk.frames[:-1]):
        return False
    return parameter.annotation is None or "Tensor" in walk.frame.unit.text_of(parameter.annotation)


def _is_forward(function: Function) -> bool:
    return getattr(function.node, "name", "") == "forward"


def evaluate_defaults(walk: Walk, spec: ast.arguments) -> Dict[str, Value]:
    """Evaluate what parameters are where nothing is given, by their names."""
    positional = [*getattr(spec, "posonlyargs", []), *spec.args]
    pairs = [*zip(positional[len(positional) - len(spec.defaults) :], spec.defaults)]
    pairs += [(name, default) for name, default in zip(spec.kwonlyargs, spec.kw_defaults) if default is not None]
    return {parameter.arg: walk.evaluate(default) for parameter, default in pairs}


def call_method_of(walk: Walk, item: Object, name: str, arguments: Arguments, node: ast.AST) -> Optional[Value]:
    """Call a method of an instance of a class of the program's; None where its classes have none of this name."""
    if item.definition is None:
        return None
    found = find_in_class(walk, item.definition, name)
    if found is None:
        return None
    results = [
        call_function(walk, function, arguments, node)
        for part in found
        for function in bind_function(part, (item,))
        if isinstance(function, Function)
    ]
    return join(*results)


def instantiate_class(
    walk: Walk, definition: Class, arguments: Arguments, node: ast.AST, call: Optional[Call] = None
) -> Object:
    """Make an instance of a class of the program's and walk its `__init__`."""
    key = (node, walk.frame.key, definition)
    instance = walk.objects.get(key)
    if instance is None:
        instance = walk.objects[key] = _make_instance(walk, definition, arguments, node, call)
        walk.instances.setdefault(definition, []).append(instance)
    if call_method_of(walk, instance, "__init__", arguments, node) is None:
        _fill_fields(walk, instance, definition, arguments)
    if instance.program_object is not None and instance.program_object.kind in (Kind.MODULE, Kind.DATASET, Kind.LOADER):
        inner = [list_program_objects(value) for value in list(instance.variables.values())]
        kinds = (Kind.MODULE, Kind.CRITERION, Kind.DATASET)
        parts = tuple(one for objects in inner for one in objects if one.kind in kinds)
        walk.collector.add_parts(instance.program_object, parts)
        if instance.program_object.kind is Kind.MODULE:
            _record_hidden_parts(walk, instance, definition)
    return instance


def _record_hidden_parts(walk: Walk, instance: Object, definition: Class) -> None:
    """Record the lists and dictionaries of a module that hold modules or parameters, which it then does not know of."""
    holders = {
        name: [item for item in value if isinstance(item, Object) and item.program_object is None and item.elements]
        for name, value in instance.variables.items()
    }
    places = {
        target.attr: node.value
        for node in (part for cls in definition.line for part in list_statements(cls.node))
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Attribute)
    }
    known = {
        item.program_object
        for value in instance.variables.values()
        for item in value
        if isinstance(item, Object) and item.program_object
    }
    with walk.inside(Frame(unit=definition.unit, module=definition.module, variables={}, name=definition.name)):
        for name, items in holders.items():
            objects = [
                one for one in list_program_objects(tuple(items)) if one.kind is Kind.MODULE or is_parameter(one)
            ]
            if name in places and objects and known.isdisjoint(objects):
                walk.record_statement(places[name], tuple(objects), asks="parts")


def find_instance(walk: Walk, definition: Class) -> Object:
    """Find an instance of a class that the program makes, of one that derives from it, or make one."""
    for owner, instances in walk.instances.items():
        if definition in owner.line:
            return instances[-1]
    derived = [cls for cls in walk.classes.values() if cls is not definition and definition in cls.line]
    owner = derived[0] if derived else definition
    frame = Frame(unit=owner.unit, module=owner.module, variables=walk.globals[owner.module])
    with walk.inside(frame, in_forward=False):
        return instantiate_class(walk, owner, Arguments(are_unknown=True), owner.node)


def _make_instance(walk: Walk, definition: Class, arguments: Arguments, node: ast.AST, call: Optional[Call]) -> Object:
    kind = find_kind_of_class(definition)
    if kind is None:
        return Object(definition=definition)
    values = [*arguments.values, *arguments.keywords.values()]
    parts = tuple(one for value in values for one in list_program_objects(value))
    key = (node, walk.frame.key, kind, definition)
    place = walk.place_of(node)
    program_object = walk.collector.make_object(key, kind, name=definition.name, place=place, parts=parts, call=call)
    instance = Object(program_object, definition)
    walk.by_program_object[program_object] = instance
    return instance


def _fill_fields(walk: Walk, instance: Object, definition: Class, arguments: Arguments) -> None:
    """Set the fields of a dataclass or a named tuple."""
    fields = [
        statement.target.id
        for cls in reversed(definition.line)
        for statement in cls.node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]
    given = {**dict(zip(fields, arguments.values)), **arguments.keywords}
    for name, value in given.items():
        walk.store.write(instance.variables, name, value)
