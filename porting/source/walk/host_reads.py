"""Record where Python would ask a tensor for a truth, a number or a text.

The rules of `forward` and of loops read these places.
"""

from __future__ import annotations

import ast
from typing import List

from porting.source.facts import Kind, ProgramObject
from porting.source.library import NAMES, TENSOR_KINDS, find_asking
from porting.source.walk.functions import Arguments, call_function
from porting.source.walk.iteration import find_element
from porting.source.walk.values import (
    Constant,
    Function,
    Item,
    Object,
    Stream,
    Value,
    join,
    list_program_objects,
    list_tensors,
)
from porting.source.walk.walk import Walk

__all__ = ["ask_call", "ask_truth", "evaluate_choice", "is_mask", "record_read"]


def ask_truth(walk: Walk, node: ast.expr) -> Value:
    """Evaluate a condition, whose tensors are asked for their truth, each part by itself."""
    if isinstance(node, ast.BoolOp):
        return evaluate_choice(walk, node, asks_last=True)
    value = walk.evaluate(node)
    record_read(walk, node, value)
    return value


def evaluate_choice(walk: Walk, node: ast.BoolOp, *, asks_last: bool = False) -> Value:
    """Evaluate `and` or `or`, which ask for the truth of all but the last, and come to each only after those before."""
    values: List[Value] = []
    with walk.standing(guards=walk.guards):
        for part in node.values:
            asks = asks_last or part is not node.values[-1]
            values.append(ask_truth(walk, part) if asks else walk.evaluate(part))
            walk.guards = (*walk.guards, part if isinstance(node.op, ast.And) else walk.negate(part))
    # a constant beside what is not known is not the value
    return join(*[tuple(i for i in value if all(values) or not isinstance(i, Constant)) for value in values])


def record_read(walk: Walk, node: ast.AST, value: Value, *, asks: str = "value") -> None:
    """Record that Python asks for the value of an expression, if it is known to be a tensor on every way to it."""
    items = [item for item in value if not (isinstance(item, Constant) and item.value is None)]
    objects = list_tensors(value)
    if not objects or len(objects) < len(items) or walk.asks_nothing:
        return
    if not all(_is_vague(walk, one, node, asks) for one in objects):
        walk.record_statement(node, objects, asks=asks)


def _is_vague(walk: Walk, program_object: ProgramObject, node: ast.AST, asks: str) -> bool:
    """Tell whether a program object may as well be a number, a sequence or a truth value of Python's."""
    last = program_object.name.rpartition(".")[2]
    if program_object in walk.guessed:
        return walk.guessed[program_object] or asks != "text"
    tensors = [part for part in program_object.parts if part.kind in TENSOR_KINDS]
    if last.startswith(("is_", "_is_", "has_")):
        return True
    if program_object.name == "element":
        # of a dictionary the keys
        return all(part.kind is Kind.BATCH or not walk.collector.is_derived(part) for part in tensors)
    if program_object.name in _COMPUTED or program_object.name[:1] == "." and last not in NAMES["tensor methods"]:
        return bool(tensors) and all(_is_vague(walk, part, node, asks) for part in tensors)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        # a batch or an output may be a sequence, which is asked whether it is empty
        return program_object.kind in (Kind.BATCH, Kind.OUTPUT) and (
            program_object.name in _PARTS or not walk.collector.is_derived(program_object)
        )
    return False


_PARTS = frozenset({"part", "[]"})
_COMPUTED = frozenset({"compare", "operator", *"+-*/&|^~", "**", *_PARTS})


def is_mask(program_object: ProgramObject) -> bool:
    """Tell whether a tensor holds truth values, which choose elements where they stand for an index."""
    last = program_object.name.rpartition(".")[2]
    tensors = [part for part in program_object.parts if part.kind in TENSOR_KINDS]
    if program_object.name == "compare" or program_object.name != last and last in NAMES["comparing"]:
        return True
    return (program_object.name in _LOGIC or program_object.name != last and last in NAMES["keeping"]) and any(
        map(is_mask, tensors)
    )


_LOGIC = frozenset("& | ^ ~ [] part".split())


def ask_call(walk: Walk, name: str, receiver: Value, arguments: Arguments, node: ast.Call) -> None:
    """Record what a call asks of tensors: of its arguments, of their elements, or of what its method is called on."""
    asking = find_asking(name)
    values = [*arguments.values, *(value for name, value in arguments.keywords.items() if name != "out")]
    if asking == "method" and not receiver:
        # NumPy's arrays have such methods, too
        values = []
    elif asking == "method":
        values = [receiver]
    elif asking == "elements":
        values = _list_compared(walk, arguments, node)
    elif asking == "list":
        holders = [tuple(item for item in value if _is_holder(item)) for value in arguments.values[:1]]
        values = [find_element(walk, holder, node) for holder in holders]
    elif (
        asking == "number of a tensor"
        and not list_tensors(receiver)
        or asking == "text"
        and list_program_objects(receiver)
    ):
        values = []
    for value in values:
        for item in value:
            if not _is_holder(item):
                record_read(walk, node, (item,), asks="text" if asking == "text" else "value")


def _list_compared(walk: Walk, arguments: Arguments, node: ast.Call) -> List[Value]:
    """List what `max` and the like compare: several arguments, the elements of one, or what a key makes of them."""
    values = arguments.values
    if len(values) == 1:
        values = [find_element(walk, values[0], node)]
    if "key" not in arguments.keywords:
        return values
    keys = [item for item in arguments.keywords["key"] if isinstance(item, Function)]
    return [call_function(walk, key, Arguments([value]), node) for key in keys for value in values[:1]]


def _is_holder(item: Item) -> bool:
    return isinstance(item, Stream) or isinstance(item, Object) and item.program_object is None
