"""Find numbers that a program changes while it trains, and that a port has compiled in: a scale, a loss's weight."""

from __future__ import annotations

import ast
from typing import Iterator, List, Sequence, Set, Tuple

from porting.convert.bindings import Undecided
from porting.convert.names import collect_reads
from porting.convert.program import Program
from porting.convert.trees import LOOPS, ProgramFile, list_targets, write_node

__all__ = ["is_number", "list_changes"]

_BY_TENSOR = "give it to `forward` as a tensor, or keep it in a buffer that `forward` reads"
_OF_NUMBERS = ("abs", "float", "int", "len", "max", "min", "round")


def is_number(value: ast.AST) -> bool:
    """Tell whether an expression computes a number of Python's from numbers and names.

    >>> [is_number(ast.parse(text, mode="eval").body) for text in ("min(1.0, step / 10)", "x.mean()", "None")]
    [True, False, False]
    """
    calls = [write_node(one.func) for one in ast.walk(value) if isinstance(one, ast.Call)]
    if not all(name in _OF_NUMBERS or name.startswith("math.") for name in calls):
        return False
    constants = [one.value for one in ast.walk(value) if isinstance(one, ast.Constant)]
    return bool(calls) or any(isinstance(one, (int, float)) for one in constants)


def list_changes(program: Program, units: Sequence[ast.stmt] = ()) -> List[Undecided]:
    """List the statements in loops that change a number which `forward`, or a loss's statements, read."""
    return [
        Undecided(file.path, node.lineno, f"`{name}` changes in training, and a port has it compiled in", _BY_TENSOR)
        for file, node, name in _iter_changes(program, units)
    ]


def _iter_changes(program: Program, units: Sequence[ast.stmt]) -> Iterator[Tuple[ProgramFile, ast.stmt, str]]:
    # a function outside of classes may be the loss, which the facts have in a port
    inside = [(file, body) for file, body in program.list_forward_functions() if units or file.find_class(body)]
    bodies: List[ast.AST] = [body for _file, body in inside]
    bodies.append(ast.Module(list(units), []))
    called = collect_reads(*units)
    bodies += [one for file in program.files.values() for one in file.tree.body if getattr(one, "name", "") in called]
    read = {name for body in bodies for name in _collect_outer(body)}
    looped = {call.where.body for call in program.facts.calls if call.where.loops} - {None}
    for file in program.files.values():
        for node in ast.walk(file.tree):
            if not isinstance(node, (ast.Assign, ast.AugAssign)) or not is_number(node.value):
                continue
            function = file.find_function(node)
            if any(function is body for body in bodies) or getattr(function, "name", "") == "__init__":
                continue
            if function not in looped and not any(isinstance(above, LOOPS) for above in file.iter_above(node)):
                continue
            for target in list_targets(node):
                owner, _, name = target.rpartition(".")
                is_read = name in read or owner and f"self.{name}" in read
                if is_read and (owner or function is None or _is_global(function, name)):
                    yield file, node, target


def _collect_outer(body: ast.AST) -> Set[str]:
    """Collect the attributes, those of its object as `self.x`, and the names of others that a body reads."""
    own = {one.arg for one in ast.walk(body) if isinstance(one, ast.arg)}
    own |= {one.id for one in ast.walk(body) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    loads = [one for one in ast.walk(body) if isinstance(getattr(one, "ctx", None), ast.Load)]
    attributes = [one for one in loads if isinstance(one, ast.Attribute)]
    names = {one.id for one in loads if isinstance(one, ast.Name) and one.id not in own}
    return names | {f"self.{one.attr}" if write_node(one.value) == "self" else one.attr for one in attributes}


def _is_global(function: ast.AST, name: str) -> bool:
    return any(isinstance(one, ast.Global) and name in one.names for one in ast.walk(function))
