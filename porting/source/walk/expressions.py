"""Work out what each expression may be, by its syntax.

The dispatch of a walk leads here.
"""

from __future__ import annotations

import ast
import builtins
from typing import Dict, List, Mapping, Tuple, Type, Union

from porting.source.facts import Kind
from porting.source.walk.assignment import assign
from porting.source.walk.attributes import read_attribute, read_bound
from porting.source.walk.calls import evaluate_call
from porting.source.walk.functions import Arguments, call_function, evaluate_defaults
from porting.source.walk.host_reads import ask_truth, evaluate_choice, is_mask, record_read
from porting.source.walk.iteration import find_element, index_value
from porting.source.walk.loops import list_loops_over_batches
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Constant,
    External,
    Function,
    Object,
    Scope,
    Stream,
    Value,
    join,
    list_objects,
    list_program_objects,
    list_tensors,
)
from porting.source.walk.walk import Evaluator, Walk

__all__ = ["EVALUATORS"]

_BUILTINS: Dict[str, Value] = {name: (External(f"builtins.{name}"),) for name in dir(builtins)}


def _evaluate_name(walk: Walk, node: ast.Name) -> Value:
    frame = walk.frame
    scopes: Tuple[Scope, ...] = (frame.variables, *frame.scopes, walk.globals[frame.module])
    if node.id in frame.outer_names:
        scopes = (frame.outer_names[node.id],)
    for scope in scopes:
        if node.id in scope:
            return walk.store.read(scope, node.id) or UNKNOWN
    return _BUILTINS.get(node.id, UNKNOWN)


def _evaluate_constant(walk: Walk, node: ast.Constant) -> Value:
    return (Constant.of(node.value),)


def _evaluate_attribute(walk: Walk, node: ast.Attribute) -> Value:
    value = read_attribute(walk, walk.evaluate(node.value), node.attr, node)
    value = _call_properties(walk, value, node)
    return read_bound(walk, value, node)


def _call_properties(walk: Walk, value: Value, node: ast.Attribute) -> Value:
    if not any(isinstance(item, Function) and item.form == "property" for item in value):
        return value
    results: List[Value] = []
    for item in value:
        if isinstance(item, Function) and item.form == "property":
            results.append(call_function(walk, item, Arguments(), node))
        else:
            results.append((item,))
    return join(*results)


def _evaluate_subscript(walk: Walk, node: ast.Subscript) -> Value:
    value = walk.evaluate(node.value)
    index = walk.evaluate(_get_index(node))
    if any(isinstance(item, Object) and item.elements and set(map(type, item.elements)) == {int} for item in value):
        # a list, or modules in one, takes a number
        record_read(walk, node, index)
    result = index_value(walk, value, index, node)
    if list_tensors(value) and any(map(is_mask, list_program_objects(index))):
        walk.record_statement(node, list_program_objects(result), asks="shape")
    elif any(one.kind is Kind.OUTPUT for one in list_tensors(value)):
        name = getattr(_get_index(node), "attr", "")
        if name.endswith("_mask"):
            # as of the graphs of PyTorch Geometric: `data.train_mask`
            walk.record_statement(node, list_program_objects(result), shown=_get_index(node), asks="shape by name")
    return result


def _get_index(node: ast.Subscript) -> ast.AST:
    index: ast.AST = node.slice
    # before Python 3.9
    return getattr(index, "value", index) if type(index).__name__ == "Index" else index


def _evaluate_slice(walk: Walk, node: ast.Slice) -> Value:
    for part in (node.lower, node.upper, node.step):
        if part is not None:
            record_read(walk, part, walk.evaluate(part))
    return UNKNOWN


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@"}
_OPERATORS.update({ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"})


def _evaluate_operation(walk: Walk, node: ast.BinOp) -> Value:
    left, right = walk.evaluate(node.left), walk.evaluate(node.right)
    if isinstance(node.op, ast.Mod) and any(isinstance(item, Constant) and item.kind == "str" for item in left):
        for program_object in list_program_objects(right):
            record_read(walk, node, (walk.wrap(program_object),), asks="text")
        return UNKNOWN
    objects = list_tensors(left, right)
    if objects:
        return (walk.derive(node, objects, name=_OPERATORS.get(type(node.op), "operator")),)
    weights = list_objects((*left, *right), Kind.PARAMETERS)
    if weights:
        return tuple(weights)
    if isinstance(node.op, ast.Add):
        text = _join_texts([left, right])
        if text:
            return text
    containers = [item for item in (*left, *right) if isinstance(item, Object) and item.elements is not None]
    return join(*[(item,) for item in containers])


def _evaluate_unary(walk: Walk, node: ast.UnaryOp) -> Value:
    if isinstance(node.op, ast.Not):
        ask_truth(walk, node.operand)
        return UNKNOWN
    value = walk.evaluate(node.operand)
    objects = list_tensors(value)
    if objects:
        return (walk.derive(node, objects, name="~" if isinstance(node.op, ast.Invert) else "-"),)
    numbers = [item.value for item in value if isinstance(item, Constant) and isinstance(item.value, (int, float))]
    if isinstance(node.op, ast.USub) and numbers and len(numbers) == len(value):
        return tuple(Constant.of(-number) for number in numbers)
    return UNKNOWN


def _evaluate_comparison(walk: Walk, node: ast.Compare) -> Value:
    is_identity = all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops)
    with walk.standing(asks_nothing=walk.asks_nothing or is_identity):
        values = [walk.evaluate(part) for part in (node.left, *node.comparators)]
    objects = list_tensors(*values)
    compares = not any(isinstance(operator, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for operator in node.ops)
    # no tensor is compared with a text
    texts = any(isinstance(item, Constant) and item.kind in ("str", "NoneType") for value in values for item in value)
    if not objects or not compares or texts:
        return UNKNOWN
    result: Value = (walk.derive(node, objects, name="compare"),)
    if len(node.ops) > 1:
        # each comparison but the last is asked for its truth
        record_read(walk, node, result)
    return result


def _evaluate_conditional(walk: Walk, node: ast.IfExp) -> Value:
    ask_truth(walk, node.test)
    with walk.standing(guards=(*walk.guards, node.test)):
        body = walk.evaluate(node.body)
    with walk.standing(guards=(*walk.guards, walk.negate(node.test))):
        return join(body, walk.evaluate(node.orelse))


def _evaluate_sequence(walk: Walk, node: Union[ast.List, ast.Tuple, ast.Set]) -> Value:
    container = walk.make_container(node, anew=True)
    assert container.elements is not None
    number = 0
    for element in node.elts:
        if isinstance(element, ast.Starred):
            walk.store.add(container.elements, ANY, find_element(walk, walk.evaluate(element.value), element))
        else:
            walk.store.write(container.elements, number, walk.evaluate(element))
            number += 1
    return (container,)


def _evaluate_dictionary(walk: Walk, node: ast.Dict) -> Value:
    container = walk.make_container(node, anew=True)
    assert container.elements is not None
    for key_node, value_node in zip(node.keys, node.values):
        value = walk.evaluate(value_node)
        if key_node is None:
            _copy_elements(walk, container, value)
            continue
        keys = walk.evaluate(key_node)
        constants = [item.value for item in keys if isinstance(item, Constant)]
        if len(constants) == 1 and isinstance(constants[0], (str, int)):
            walk.store.write(container.elements, constants[0], value)
        else:
            walk.store.add(container.elements, ANY, value)
    return (container,)


def _copy_elements(walk: Walk, container: Object, value: Value) -> None:
    assert container.elements is not None
    for item in value:
        if isinstance(item, Object) and item.elements is not None:
            for key, element in list(item.elements.items()):
                walk.store.write(container.elements, key, element)


_Comprehension = Union[ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp]


def _evaluate_comprehension(walk: Walk, node: _Comprehension) -> Value:
    with walk.standing(loops=walk.loops):
        _enter_generators(walk, node)
        if isinstance(node, ast.DictComp):
            walk.evaluate(node.key)
        element = walk.evaluate(node.value if isinstance(node, ast.DictComp) else node.elt)
    if isinstance(node, ast.GeneratorExp):
        return (Stream(element, list_program_objects(element)),)
    return (walk.make_container(node, {ANY: element}),)


def _enter_generators(walk: Walk, node: _Comprehension) -> None:
    for generator in node.generators:
        value = walk.evaluate(generator.iter)
        walk.loops = (*walk.loops, *list_loops_over_batches(walk, node, value))
        assign(walk, generator.target, find_element(walk, value, generator.iter), generator.iter)
        for test in generator.ifs:
            ask_truth(walk, test)


def _evaluate_lambda(walk: Walk, node: ast.Lambda) -> Value:
    frame = walk.frame
    key = (node, frame.key, "lambda")
    if key not in walk.lambdas:
        scopes = (frame.variables, *frame.scopes)
        name = f"{frame.name or frame.module.name}.<lambda>"
        defaults = evaluate_defaults(walk, node.args)
        walk.lambdas[key] = Function(
            node, name=name, unit=frame.unit, module=frame.module, scopes=scopes, defaults=defaults
        )
    return (walk.lambdas[key],)


def _evaluate_text(walk: Walk, node: ast.JoinedStr) -> Value:
    values: List[Value] = []
    for part in node.values:
        is_text = isinstance(part, ast.Constant)
        values.append(walk.evaluate(part if is_text else getattr(part, "value", None)))
        walk.evaluate(getattr(part, "format_spec", None))
        if not is_text:
            record_read(walk, part, values[-1], asks="text")
    return _join_texts(values)


def _join_texts(values: List[Value]) -> Value:
    """Join texts that are all known."""
    if not all(len(value) == 1 and isinstance(value[0], Constant) and value[0].kind == "str" for value in values):
        return UNKNOWN
    text = "".join(value[0].value for value in values if isinstance(value[0], Constant))
    return (Constant.of(text),) if len(text) < _LONGEST_TEXT else UNKNOWN


_LONGEST_TEXT = 4096


def _evaluate_inner(walk: Walk, node: Union[ast.Starred, ast.Await]) -> Value:
    return walk.evaluate(node.value)


def _evaluate_named(walk: Walk, node: ast.NamedExpr) -> Value:
    value = walk.evaluate(node.value)
    assign(walk, node.target, value, node.value)
    return value


def _evaluate_yield(walk: Walk, node: ast.Yield) -> Value:
    walk.frame.yielded.append(walk.evaluate(node.value))
    return UNKNOWN


def _evaluate_yield_from(walk: Walk, node: ast.YieldFrom) -> Value:
    walk.frame.yielded.append(find_element(walk, walk.evaluate(node.value), node))
    return UNKNOWN


EVALUATORS: Mapping[Type[ast.AST], Evaluator] = {
    ast.Attribute: _evaluate_attribute,
    ast.Await: _evaluate_inner,
    ast.BinOp: _evaluate_operation,
    ast.BoolOp: evaluate_choice,
    ast.Call: evaluate_call,
    ast.Compare: _evaluate_comparison,
    ast.Constant: _evaluate_constant,
    ast.Dict: _evaluate_dictionary,
    ast.DictComp: _evaluate_comprehension,
    ast.GeneratorExp: _evaluate_comprehension,
    ast.IfExp: _evaluate_conditional,
    ast.JoinedStr: _evaluate_text,
    ast.Lambda: _evaluate_lambda,
    ast.List: _evaluate_sequence,
    ast.ListComp: _evaluate_comprehension,
    ast.Name: _evaluate_name,
    ast.NamedExpr: _evaluate_named,
    ast.Set: _evaluate_sequence,
    ast.SetComp: _evaluate_comprehension,
    ast.Slice: _evaluate_slice,
    ast.Starred: _evaluate_inner,
    ast.Subscript: _evaluate_subscript,
    ast.Tuple: _evaluate_sequence,
    ast.UnaryOp: _evaluate_unary,
    ast.Yield: _evaluate_yield,
    ast.YieldFrom: _evaluate_yield_from,
}
"""What evaluates each kind of expression; of the others nothing is known."""
