"""Assign values to names, attributes and elements, or to several at once.

A value that nothing tells is guessed from the name.
"""

from __future__ import annotations

import ast
from typing import Optional

from porting.source.facts import Kind, ProgramObjects
from porting.source.library import TENSOR_KINDS, is_known_library, is_of_python
from porting.source.walk.guesses import Uses, guess_kind, guess_kind_by_name, name_expression
from porting.source.walk.iteration import unpack_value
from porting.source.walk.values import (
    ANY,
    UNKNOWN,
    Class,
    External,
    Object,
    Scope,
    Value,
    list_constants,
    list_program_objects,
)
from porting.source.walk.walk import Walk

__all__ = ["assign", "delete"]

_GUESSED_BY_NAME = (
    Kind.MODULE,
    Kind.LOADER,
    Kind.DATASET,
    Kind.OPTIMIZER,
    Kind.SCHEDULER,
    Kind.CRITERION,
    Kind.SCALER,
    Kind.BATCH,
)


def assign(walk: Walk, target: ast.expr, value: Value, source: Optional[ast.AST] = None) -> ProgramObjects:
    """Assign a value; return the objects that are assigned to: what was there, or what the element belongs to.

    `source` is the expression of the value, None where it is a part of one.
    """
    if isinstance(target, ast.Name):
        return _assign_name(walk, target, value, source)
    if isinstance(target, ast.Attribute):
        return _assign_attribute(walk, target, value, source)
    if isinstance(target, ast.Subscript):
        return _assign_element(walk, target, value)
    if isinstance(target, ast.Starred):
        return assign(walk, target.value, value)
    objects: ProgramObjects = ()
    if isinstance(target, (ast.Tuple, ast.List)):
        for part, inner in zip(target.elts, unpack_value(walk, value, target.elts, target)):
            objects += assign(walk, part, inner, source if not value else None)
    return objects


def _assign_name(walk: Walk, target: ast.Name, value: Value, source: Optional[ast.AST]) -> ProgramObjects:
    scope = _find_scope(walk, target.id)
    _learn_kind(walk, target.id, value)
    before = list_program_objects(scope.get(target.id, UNKNOWN))
    walk.store.write(scope, target.id, value or _guess_value(walk, target, target.id, source))
    return before


def _find_scope(walk: Walk, name: str) -> Scope:
    return walk.frame.outer_names.get(name, walk.frame.variables)


def _learn_kind(walk: Walk, name: str, value: Value) -> None:
    """Learn what an instance of a class is that cannot be read, by what is done with it and what it is called."""
    for item in value:
        if isinstance(item, Object) and item.program_object is not None and item.program_object.kind is Kind.OTHER:
            if is_known_library(item.program_object.name):
                continue
            by_use = guess_kind(_find_uses(walk, name), name)
            by_name = guess_kind_by_name(name.rpartition(".")[2])
            kind = by_use or (by_name if by_name in _GUESSED_BY_NAME else None)
            if kind is not None:
                walk.collector.become(item.program_object, kind, is_guess=by_use is None)


def _find_uses(walk: Walk, name: str) -> Uses:
    """Find what is done with the names of the function that is walked, or of its class for an attribute of `self`."""
    function = walk.frame.function
    scope: ast.AST = function.node if function is not None else walk.frame.unit.tree
    if function is not None and function.owner is not None and "." in name:
        scope = function.owner.node
    return walk.find_uses(scope)


def _guess_value(walk: Walk, target: ast.expr, name: str, source: Optional[ast.AST]) -> Value:
    """Guess what a call of something unknown returned, by what is done with it and what it is called."""
    if not isinstance(source, (ast.Call, ast.Subscript)) or _is_of_python(walk, source):
        return UNKNOWN
    by_use = guess_kind(_find_uses(walk, name), name)
    by_name = guess_kind_by_name(name.rpartition(".")[2]) if isinstance(source, ast.Call) else None
    kind = by_use or (by_name if by_name in _GUESSED_BY_NAME else None)
    if kind is None:
        return UNKNOWN
    return (walk.make(target, kind, name=name, label="guess", is_guess=by_use is None),)


def _is_of_python(walk: Walk, source: ast.AST) -> bool:
    """Tell a call of Python's own functions, or of libraries that know nothing of torch."""
    root = source
    while isinstance(root, (ast.Call, ast.Attribute, ast.Subscript)):
        root = root.func if isinstance(root, ast.Call) else root.value
    value = walk.evaluate(root) if isinstance(root, ast.Name) else UNKNOWN
    names = [item.name for item in value if isinstance(item, External)]
    return isinstance(root, ast.Constant) or any(map(is_of_python, names))


def _assign_attribute(walk: Walk, target: ast.Attribute, value: Value, source: Optional[ast.AST]) -> ProgramObjects:
    owner = walk.evaluate(target.value)
    objects = tuple(one for one in list_program_objects(owner) if one.kind in (*TENSOR_KINDS, Kind.PARAMETERS))
    if target.attr in ("data", "grad") and objects:
        walk.record_statement(target, objects, asks=target.attr)
    if not value:
        value = _guess_value(walk, target, name_expression(target), source)
    _learn_kind(walk, name_expression(target), value)
    for item in owner:
        if isinstance(item, Class) or (isinstance(item, Object) and len(owner) == 1):
            walk.store.write(item.variables, target.attr, value)
        elif isinstance(item, Object):
            walk.store.add(item.variables, target.attr, value)
    return list_program_objects(owner)


def _assign_element(walk: Walk, target: ast.Subscript, value: Value) -> ProgramObjects:
    owner = walk.evaluate(target.value)
    index: ast.AST = target.slice
    keys = list_constants(walk.evaluate(getattr(index, "value", index) if type(index).__name__ == "Index" else index))
    for item in owner:
        if isinstance(item, Object) and item.elements is not None:
            if len(keys) == 1 and isinstance(keys[0], (str, int)):
                walk.store.write(item.elements, keys[0], value)
            else:
                walk.store.add(item.elements, ANY, value)
    return list_program_objects(owner)


def delete(walk: Walk, target: ast.expr) -> ProgramObjects:
    """Take a name away; return the objects that it was."""
    objects = list_program_objects(walk.evaluate(target))
    if isinstance(target, ast.Name):
        walk.store.write(_find_scope(walk, target.id), target.id, None)
    elif isinstance(target, (ast.Tuple, ast.List)):
        for part in target.elts:
            delete(walk, part)
    return objects
