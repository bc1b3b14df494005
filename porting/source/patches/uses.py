"""Uses of a value in its function: whether all that is done with it is torch's, wherever assignments carry it."""

from __future__ import annotations

import ast
from typing import Dict, Optional, Set

from porting.diagnostics import Place
from porting.source.library import NAMES

__all__ = ["SourceTree"]

_HOST_METHODS = frozenset({"numpy", "tolist", "item", "__array__", "cpu", "cuda", "to", "type_as", "pin_memory"})
_FUNCTIONS = ("torch", "F", "nn", "self", "poptorch")
_PASSING = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.Starred, ast.IfExp)
_TENSORS = ("data", "T", "mT", "H", "real", "imag", "grad")
_ENDS = (ast.Return, ast.Expr, ast.AugAssign)


class SourceTree:
    """The syntax of a file, from its nodes up to what they stand in."""

    def __init__(self, text: bytes) -> None:
        self.tree = ast.parse(text)
        self._parents: Dict[ast.AST, ast.AST] = {
            inner: node for node in ast.walk(self.tree) for inner in ast.iter_child_nodes(node)
        }

    def find_call(self, place: Place) -> Optional[ast.Call]:
        """Find the outermost call that begins at a place, and ends there if that is known."""
        begin, end = (place.line, place.column), (place.end_line or place.line, place.end_column)
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        fitting = [node for node in calls if (node.lineno, node.col_offset + 1) == begin]
        ends = [node for node in fitting if (node.end_lineno, (node.end_col_offset or 0) + 1) == end]
        return next(iter([*ends, *fitting]), None)

    def stays_with_torch(self, node: ast.AST) -> bool:
        """Tell whether no use of an expression needs more of it than being a tensor on its device."""
        return self._stays(node, set())

    def is_aliased(self, place: Place, name: str) -> bool:
        """Tell whether the function around a place gives what a name holds, or a view of it, another name."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= place.line <= (node.end_lineno or 0)
        ]
        assigned = ast.walk(around[-1] if around else self.tree)
        return any(
            isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno < place.line and _is_view(node.value, name)
            for node in assigned
        )

    def _stays(self, node: ast.AST, seen: Set[str]) -> bool:
        parent = self._parents.get(node)
        if isinstance(parent, ast.Attribute):
            call = self._parents.get(parent)
            is_method = isinstance(call, ast.Call) and call.func is parent
            if parent.attr in _HOST_METHODS or not is_method and parent.attr not in _TENSORS:
                return parent.attr not in _HOST_METHODS
            return self._stays(call if is_method and call is not None else parent, seen)
        if isinstance(parent, ast.Subscript) and node is not parent.value:
            # what is indexed may be elsewhere
            return False
        if isinstance(parent, ast.keyword):
            parent = self._parents.get(parent)
        if isinstance(parent, ast.Call):
            root = parent.func
            while isinstance(root, (ast.Attribute, ast.Call)):
                root = root.value if isinstance(root, ast.Attribute) else root.func
            return isinstance(root, ast.Name) and root.id in _FUNCTIONS and self._stays(parent, seen)
        if isinstance(parent, ast.Assign):
            targets = [part for target in parent.targets for part in getattr(target, "elts", [target])]
            return all(isinstance(target, ast.Name) and self._follow(target, seen) for target in targets)
        return isinstance(parent, _ENDS) or isinstance(parent, _PASSING) and self._stays(parent, seen)

    def _follow(self, target: ast.Name, seen: Set[str]) -> bool:
        """Follow a variable into its uses; those of another one of the name count as well."""
        if target.id in seen:
            return True
        seen.add(target.id)
        loads = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        return all(self._stays(node, seen) for node in loads if node.id == target.id)


def _is_view(node: Optional[ast.AST], name: str) -> bool:
    """Tell whether an expression is what a name holds, a part of it, or may be a view of it."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            is_view = isinstance(node.func, ast.Attribute) and node.func.attr in NAMES["views"]
            node = node.func if is_view else None
        else:
            node = node.value
    return isinstance(node, ast.Name) and node.id == name
