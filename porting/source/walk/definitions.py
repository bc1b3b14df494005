"""Definitions of functions and classes, with their decorators."""

from __future__ import annotations

import ast
from typing import Union

from porting.source.library import NAMES
from porting.source.walk.functions import Arguments, call_function, evaluate_defaults
from porting.source.walk.values import Class, External, Function, Value
from porting.source.walk.walk import Frame, Walk

__all__ = ["define_class", "define_function"]

_FunctionNode = Union[ast.FunctionDef, ast.AsyncFunctionDef]


def define_function(walk: Walk, node: _FunctionNode) -> None:
    """Walk the definition of a function: its decorators and defaults, but not its body."""
    frame = walk.frame
    key = (node, frame.key, "function")
    known = walk.lambdas.get(key)
    function = known or _make_function(walk, node)
    if known is None:
        walk.lambdas[key] = function
        walk.functions.append(function)
    value: Value = (function,)
    for decorator in reversed(node.decorator_list):
        value = _apply_decorator(walk, decorator, value)
    walk.store.write(frame.outer_names.get(node.name, frame.variables), node.name, value)


def _make_function(walk: Walk, node: _FunctionNode) -> Function:
    frame = walk.frame
    names = [_name_decorator(decorator) for decorator in node.decorator_list]
    form = next((name for name in names if name in ("staticmethod", "classmethod")), "function")
    if any(name in ("property", "cached_property") or name.endswith(".cached_property") for name in names):
        form = "property"
    return Function(
        node,
        name=f"{frame.name or frame.module.name}.{node.name}",
        unit=frame.unit,
        module=frame.module,
        scopes=frame.scopes if frame.is_class else _list_scopes(frame),
        defaults=evaluate_defaults(walk, node.args),
        owner=frame.class_defined,
        form=form,
        without_gradients=any(_turns_gradients_off(walk, decorator) for decorator in node.decorator_list),
    )


def _is_abstract(node: ast.FunctionDef) -> bool:
    """Tell a method that only says that other classes have it."""
    body = [part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    return all(isinstance(part, (ast.Pass, ast.Raise)) for part in body)


def _list_scopes(frame: Frame) -> tuple:
    return (frame.variables, *frame.scopes) if frame.function is not None else frame.scopes


def _name_decorator(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name_decorator(node.func)
    return node.id if isinstance(node, ast.Name) else f".{node.attr}" if isinstance(node, ast.Attribute) else ""


def _turns_gradients_off(walk: Walk, node: ast.expr) -> bool:
    value = walk.evaluate(node.func if isinstance(node, ast.Call) else node)
    return any(isinstance(item, External) and item.name in NAMES["without gradients"] for item in value)


def _apply_decorator(walk: Walk, decorator: ast.expr, value: Value) -> Value:
    """Say what a decorator makes of a function: one of the program's is called, those of libraries leave it."""
    found = walk.evaluate(decorator)
    for item in found:
        if isinstance(item, Function):
            made = call_function(walk, item, Arguments([value]), decorator)
            if any(isinstance(part, (Function, Class)) for part in made):
                return made
    return value


def define_class(walk: Walk, node: ast.ClassDef) -> None:
    """Walk the body of a class and make the class."""
    frame = walk.frame
    bases = tuple(walk.evaluate(base) for base in node.bases)
    for keyword in node.keywords:
        walk.evaluate(keyword.value)
    name = f"{frame.name or frame.module.name}.{node.name}"
    key = (node, frame.key)
    definition = walk.classes.get(key)
    if definition is None:
        definition = walk.classes[key] = Class(node, name, frame.unit, frame.module, bases)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef) and not _is_abstract(statement):
                walk.methods.setdefault(statement.name, []).append(definition)
    inner = Frame(
        unit=frame.unit,
        module=frame.module,
        variables=definition.variables,
        name=name,
        scopes=_list_scopes(frame),
        key=frame.key,
        is_class=True,
        class_defined=definition,
    )
    with walk.inside(inner):
        walk.run(node.body)
    value: Value = (definition,)
    for decorator in reversed(node.decorator_list):
        value = _apply_decorator(walk, decorator, value)
    walk.store.write(frame.outer_names.get(node.name, frame.variables), node.name, value)
