"""Do what each statement does to the variables, and make the facts that rules want of it.

The dispatch of a walk leads here.
"""

from __future__ import annotations

import ast
import functools
from typing import Callable, List, Mapping, Optional, Type, Union

from porting.source.facts import ProgramObjects
from porting.source.imports import is_main_guard
from porting.source.library import NAMES
from porting.source.walk.assignment import assign, delete
from porting.source.walk.branches import merge_ends, run_branches, run_part
from porting.source.walk.definitions import define_class, define_function
from porting.source.walk.host_reads import ask_truth
from porting.source.walk.imports import execute_import, execute_import_from
from porting.source.walk.iteration import find_element
from porting.source.walk.loops import execute_for, execute_while, leave_loop
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Constant,
    External,
    Object,
    Value,
    list_program_objects,
    list_tensors,
)
from porting.source.walk.walk import Executor, Flow, Walk

__all__ = ["EXECUTORS"]


def _execute_expression(walk: Walk, node: ast.Expr) -> None:
    value = walk.evaluate(node.value)
    if isinstance(node.value, ast.Compare):
        walk.record_statement(node, list_program_objects(value))
    if isinstance(node.value, ast.Call) and _leaves_program(walk, node.value):
        walk.flow = Flow.RAISED


def _leaves_program(walk: Walk, node: ast.Call) -> bool:
    call = walk.collector.find_call(node)
    return call is not None and call.name in ("sys.exit", "builtins.exit", "os._exit") and not node.keywords


def _execute_assignment(walk: Walk, node: ast.Assign) -> None:
    value = walk.evaluate(node.value)
    targets: ProgramObjects = ()
    for target in node.targets:
        targets += assign(walk, target, value, node.value)
    _record_assignment(walk, node, value, targets)


def _record_assignment(walk: Walk, node: ast.stmt, value: Value, targets: ProgramObjects) -> None:
    objects = list_program_objects(value)
    if objects or targets:
        walk.record_statement(node, objects, tuple(dict.fromkeys(targets)))


def _execute_annotated(walk: Walk, node: ast.AnnAssign) -> None:
    if node.value is None:
        return
    value = walk.evaluate(node.value)
    _record_assignment(walk, node, value, assign(walk, node.target, value, node.value))


def _execute_augmented(walk: Walk, node: ast.AugAssign) -> None:
    old = walk.evaluate(node.target)
    value = walk.evaluate(node.value)
    for item in old:
        if isinstance(item, Object) and item.elements is not None and item.program_object is None:
            walk.store.add(item.elements, ANY, find_element(walk, value, node.value))
    objects = list_tensors(old, value)
    if objects:
        # a sum of losses is a loss, and keeps its graph
        assign(walk, node.target, (walk.derive(node, objects, name=_OPERATORS.get(type(node.op), "operator")),))
    if list_program_objects(old) or list_program_objects(value):
        walk.record_statement(node, list_program_objects(value), list_program_objects(old))


_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def _execute_return(walk: Walk, node: ast.Return) -> None:
    value = walk.evaluate(node.value)
    walk.frame.returned.append(value)
    if walk.in_forward and node.value is not None:
        walk.record_statement(node, list_program_objects(value))
    walk.flow = Flow.FUNCTION


def _execute_raise(walk: Walk, node: ast.Raise) -> None:
    with walk.standing(asks_nothing=True):
        walk.evaluate(node.exc)
    walk.flow = Flow.RAISED


def _execute_assert(walk: Walk, node: ast.Assert) -> None:
    walk.record_statement(node, list_program_objects(ask_truth(walk, node.test)), shown=node.test)


def _execute_delete(walk: Walk, node: ast.Delete) -> None:
    objects = tuple(one for target in node.targets for one in delete(walk, target))
    if objects:
        walk.record_statement(node, objects)


def _execute_global(walk: Walk, node: ast.Global) -> None:
    for name in node.names:
        walk.frame.outer_names[name] = walk.globals[walk.frame.module]


def _execute_nonlocal(walk: Walk, node: ast.Nonlocal) -> None:
    for name in node.names:
        scopes = [scope for scope in walk.frame.scopes if name in scope]
        if scopes:
            walk.frame.outer_names[name] = scopes[0]


def _execute_if(walk: Walk, node: ast.If) -> None:
    if is_main_guard(node.test):
        if not walk.is_main and walk.frame.module.path in walk.project.entries:
            # the file was asked for as a program as well
            walk.deferred.append((walk.frame.module, walk.frame.unit, node.body))
        elif not walk.is_main:
            walk.collector.main_parts[node] = walk.place_of(node)
        walk.run(node.body if walk.is_main else node.orelse)
        return
    value = ask_truth(walk, node.test)
    walk.record_statement(node, list_program_objects(value), shown=node.test)
    before = walk.guards
    yes, no = (*before, node.test), (*before, walk.negate(node.test))

    def run(body: List[ast.stmt], guards: tuple) -> Callable[[], None]:
        def run_guarded() -> None:
            with walk.standing(guards=guards):
                walk.run(body)

        return run_guarded

    truth = _read_truth(walk, node.test, value)
    ends = run_branches(walk, [run(node.body, yes), run(node.orelse, no)], truth)
    if walk.flow == Flow.ON:
        # what follows an `if` that leaves stands under its contrary
        walk.guards = no if ends[0] != Flow.ON else yes if ends[1] != Flow.ON else before


def _read_truth(walk: Walk, test: ast.expr, value: Value) -> Optional[bool]:
    """Tell whether a test is known to hold: of a constant that is a truth value, or of whether something is None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and isinstance(test.operand, _PLAIN):
        inner = _read_truth(walk, test.operand, walk.evaluate(test.operand))
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and isinstance(test.left, _PLAIN):
        return _read_comparison(walk, test)
    if len(value) == 1 and isinstance(value[0], Constant) and (value[0].value is None or value[0].kind == "bool"):
        return bool(value[0].value)
    return None


_PLAIN = (ast.Name, ast.Attribute)


def _read_comparison(walk: Walk, test: ast.Compare) -> Optional[bool]:
    """Tell whether `x is None` or `x is not None` is known, or whether a name is one constant or another."""
    other = test.comparators[0]
    if isinstance(test.ops[0], (ast.Eq, ast.NotEq)) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        values = [*walk.evaluate(test.left), *walk.evaluate(other)]
        is_known = len(values) == 2 and all(isinstance(item, Constant) and item.kind == "str" for item in values)
        return (values[0] == values[1]) is isinstance(test.ops[0], ast.Eq) if is_known else None
    if not isinstance(test.ops[0], (ast.Is, ast.IsNot)) or not isinstance(other, ast.Constant):
        return None
    is_none = {isinstance(item, Constant) and item.value is None for item in walk.evaluate(test.left)}
    if other.value is not None or len(is_none) != 1:
        return None
    return is_none.pop() is isinstance(test.ops[0], ast.Is)


def _execute_with(walk: Walk, node: Union[ast.With, ast.AsyncWith]) -> None:
    without = walk.without_gradients
    for item in node.items:
        value = walk.evaluate(item.context_expr)
        without = without or _turns_gradients_off(walk, item.context_expr)
        if item.optional_vars is not None:
            assign(walk, item.optional_vars, value, item.context_expr)
    with walk.standing(without_gradients=without):
        walk.run(node.body)


def _turns_gradients_off(walk: Walk, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, (ast.Name, ast.Attribute)):
        return False
    names = {item.name for item in walk.evaluate(node.func) if isinstance(item, External)}
    if "torch.set_grad_enabled" in names:
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value is False
    return bool(names & NAMES["without gradients"])


def _execute_try(walk: Walk, node: ast.Try) -> None:
    def run_body() -> None:
        with walk.standing(in_try=True):
            walk.run(node.body)
        if walk.flow == Flow.ON:
            walk.run(node.orelse)

    body = run_part(walk, run_body)
    ends = [body]
    for handler in node.handlers:

        def run_handler(handler: ast.ExceptHandler = handler) -> None:
            walk.store.merge([{}, body[0]])
            walk.evaluate(handler.type)
            if handler.name:
                walk.store.write(walk.frame.variables, handler.name, UNKNOWN)
            with walk.standing(in_try=True):
                walk.run(handler.body)

        ends.append(run_part(walk, run_handler))
    merge_ends(walk, ends)
    flow, walk.flow = walk.flow, Flow.ON
    walk.run(node.finalbody)
    walk.flow = walk.flow if walk.flow != Flow.ON else flow


def _execute_match(walk: Walk, node: ast.AST) -> None:
    walk.evaluate(getattr(node, "subject", None))
    branches = [functools.partial(walk.run, case.body) for case in getattr(node, "cases", [])]
    run_branches(walk, [*branches, lambda: None])


EXECUTORS: Mapping[Type[ast.AST], Executor] = {
    ast.AnnAssign: _execute_annotated,
    ast.Assert: _execute_assert,
    ast.Assign: _execute_assignment,
    ast.AsyncFor: execute_for,
    ast.AsyncFunctionDef: define_function,
    ast.AsyncWith: _execute_with,
    ast.AugAssign: _execute_augmented,
    ast.Break: leave_loop,
    ast.ClassDef: define_class,
    ast.Continue: leave_loop,
    ast.Delete: _execute_delete,
    ast.Expr: _execute_expression,
    ast.For: execute_for,
    ast.FunctionDef: define_function,
    ast.Global: _execute_global,
    ast.If: _execute_if,
    ast.Import: execute_import,
    ast.ImportFrom: execute_import_from,
    ast.Nonlocal: _execute_nonlocal,
    ast.Raise: _execute_raise,
    ast.Return: _execute_return,
    ast.Try: _execute_try,
    ast.While: execute_while,
    ast.With: _execute_with,
    **{
        getattr(ast, name): execute
        for name, execute in (("Match", _execute_match), ("TryStar", _execute_try))
        if hasattr(ast, name)
    },
}
"""What walks each kind of statement; the others do nothing."""
