"""Find the loader whose batches are what a port is called with, so that the port compiles before the loop.

The idiomatic style asks; a step whose arguments are made otherwise compiles at its first call.
"""

from __future__ import annotations

import ast
from typing import List

from porting.convert.names import drop_moves
from porting.convert.program import Program
from porting.convert.training_step import TrainingStep
from porting.convert.trees import write_node
from porting.source.facts import Kind, ProgramObject

__all__ = ["find_loader"]


def find_loader(program: Program, step: TrainingStep) -> str:
    """Return the loader of a step as the loop names it, if its batches are the arguments of a call; else nothing."""
    loop = step.file.find_loop(step.backward)
    if not isinstance(loop, ast.For) or step.helper is not None or step.call.keywords:
        return ""
    loader, target = loop.iter, loop.target
    if isinstance(loader, ast.Call) and write_node(loader.func) == "enumerate" and isinstance(target, ast.Tuple):
        loader, target = loader.args[0], target.elts[-1]
    names = [write_node(one) for one in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]
    given = drop_moves(", ".join([*map(step.file.text_of, step.call.args), *step.labels]))
    is_named = isinstance(loader, (ast.Name, ast.Attribute)) and given == ", ".join(names)
    assigned = [one for name in names for one in step.file.iter_assignments(name, step.scope) if one is not loop]
    inside = [one for one in assigned if loop in step.file.iter_above(one)]
    is_known = any(one.kind is Kind.LOADER for one in _list_objects(program, step, loop))
    return write_node(loader) if is_named and is_known and all(map(_is_move, inside)) else ""


def _list_objects(program: Program, step: TrainingStep, loop: ast.For) -> List[ProgramObject]:
    """List what a loop goes through, as the walk knows it."""
    loops = [one for fact in program.list_facts(step.backward) for one in fact.where.loops if one.node is loop]
    return [one for found in loops for one in found.objects]


def _is_move(statement: ast.stmt) -> bool:
    """Tell whether a statement does no more than move what it names to a device."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    return drop_moves(write_node(statement.value)) == write_node(statement.targets[0])
