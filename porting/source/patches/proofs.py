"""Prove that a change keeps the program running, by what is so around its place; else it is only shown.

`fixes` asks for the proof of each.
"""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import Callable, List, Mapping, Sequence

from porting.diagnostics import Finding, Place
from porting.source.library import NAMES
from porting.source.patches.homes import find_home
from porting.source.patches.uses import SourceTree, read_tree
from porting.source.rules.scope import MAY_BE_BARE

__all__ = ["is_proven", "leave_steps"]

_Proof = Callable[[SourceTree, Place], bool]


def is_proven(finding: Finding, text: bytes, *, is_ported: bool) -> bool:
    """Tell whether the fix of a finding is proven in its file."""
    proof = _PROOFS.get(finding.code)
    if MAY_BE_BARE in finding.notes or finding.code in _OF_PORTS and not is_ported:
        return False
    if finding.place is None:
        return True
    try:
        source = read_tree(text)
    except (SyntaxError, ValueError):
        return False
    # what is tried out is to fail
    return not source.is_tried(finding.place) and (proof is None or proof(source, finding.place))


def leave_steps(proven: Sequence[Finding], text: bytes) -> List[Finding]:
    """Leave out the fixes of steps in a file where a backward pass stays: a step may be of that one."""
    gone = {one.place.line for one in proven if one.place is not None and one.code in _OF_BACKWARD}
    if not any(one.code in _OF_STEP for one in proven):
        return list(proven)
    passes = _list_calls(read_tree(text), "backward")
    stays = any(gone.isdisjoint(range(call.lineno, (call.end_lineno or call.lineno) + 1)) for call in passes)
    return [one for one in proven if not stays or one.code not in _OF_STEP]


# on CUDA a plain program may need its move to the host; it prints what it is to print; and somebody else may see what
# is written into its inputs
_OF_PORTS = ("C004", "C010", "C026")
_OF_BACKWARD = ("L010", "O010")
_OF_STEP = ("O007", "O008", "O010")


def _prove_device(source: SourceTree, place: Place) -> bool:
    """What is made on another device may be needed where it was."""
    home = find_home(source, place)
    return home is not None and home.is_proven


def _prove_move(source: SourceTree, place: Place) -> bool:
    """NumPy and SciPy need what is on the host."""
    call = source.find_call(place)
    return call is not None and source.stays_with_torch(call)


def _prove_print(source: SourceTree, place: Place) -> bool:
    """What is printed may do something beside being printed."""
    call = source.find_call(place)
    if call is None:
        return False
    parts = [part for argument in call.args for part in ast.walk(argument)]
    called = [part.func for part in parts if isinstance(part, ast.Call)]
    names = {getattr(function, "id", getattr(function, "attr", "")) for function in called}
    return names <= NAMES["reading"] and not any(
        isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield)) for part in parts
    )


def _prove_write(source: SourceTree, place: Place) -> bool:
    """A port's inputs are copies, of which nobody else sees a write; another name of the tensor would."""
    names = (node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.lineno == place.line)
    name = next((node for node in names if source.begins_at(node, place)), None)
    function = source.find_function(name) if name is not None else None
    if name is None or function is None or source.is_aliased(place, name.id):
        return False
    is_given = any(part.arg == name.id for part in ast.walk(function.args) if isinstance(part, ast.arg))
    return not is_given or function.name == "forward" and _is_outermost(source, function)


def _is_outermost(source: SourceTree, function: ast.AST) -> bool:
    """Tell whether a method is of a model that the file makes, and never as a part of another one."""
    model = source.find_parent(function)
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if getattr(call.func, "id", "") == getattr(model, "name", None)]
    parts = {part for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef) for part in ast.walk(node)}
    return isinstance(model, ast.ClassDef) and bool(made) and parts.isdisjoint(made)


def _prove_assignment(source: SourceTree, place: Place) -> bool:
    """A program goes on as before if it is assigned what it has, in another order of its memory."""
    compared = (node for node in ast.walk(source.tree) if isinstance(node, ast.Compare) and node.lineno == place.line)
    node = next(compared, None)
    call = node.comparators[0] if node is not None else None
    function = call.func if isinstance(call, ast.Call) else None
    is_copy = isinstance(function, ast.Attribute) and function.attr == "contiguous"
    return is_copy and node is not None and ast.dump(node.left) == ast.dump(getattr(function, "value", node))


_CASTS = frozenset("half float double bfloat16 type dtype float16 float32 float64".split())


def _prove_move_of_port(source: SourceTree, place: Place) -> bool:
    """A cast may be what the program's precision is."""
    call = source.find_call(place)
    parts = list(ast.walk(call)) if call is not None else []
    return not any(getattr(part, "attr", getattr(part, "arg", "")) in _CASTS for part in parts)


def _prove_save(source: SourceTree, place: Place) -> bool:
    """What is loaded as a whole has to be saved as a whole; what PopTorch saves so, another file may load."""
    inner = {part for call in _list_calls(source, "load_state_dict") for part in ast.walk(call)}
    loads = _list_calls(source, "load")
    return all(call in inner for call in loads) and (bool(loads) or not source.imports("poptorch"))


def _list_calls(source: SourceTree, name: str) -> list:
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == name]


_PROOFS: Mapping[str, _Proof] = MappingProxyType(
    {
        "B022": _prove_assignment,
        "C004": _prove_move,
        "C010": _prove_print,
        "C011": _prove_device,
        "C026": _prove_write,
        "D003": _prove_move_of_port,
        "K006": _prove_save,
    }
)
