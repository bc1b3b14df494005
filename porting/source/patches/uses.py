"""Uses of a value in its function: whether all that is done with it is torch's, wherever assignments carry it."""

from __future__ import annotations

import ast
import functools
from importlib.util import decode_source
from typing import Dict, FrozenSet, Iterable, Optional, Set, Union

from porting.diagnostics import Place
from porting.source.files import Unit
from porting.source.library import NAMES

__all__ = ["Function", "SourceTree", "read_tree"]

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]

_HOST_METHODS = frozenset({"numpy", "tolist", "item", "__array__", "cpu", "cuda", "to", "type_as", "pin_memory"})
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_OF_TORCH = frozenset({"torch", "F", "nn", "self", "poptorch"})
_PASSING = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Tuple, ast.List, ast.Starred, ast.IfExp)
_TENSORS = ("data", "T", "mT", "H", "real", "imag", "grad")
_ENDS = (ast.Return, ast.Expr, ast.AugAssign)


class SourceTree:
    """The syntax of a file, from its nodes up to what they stand in."""

    def __init__(self, text: bytes) -> None:
        self.tree = ast.parse(text)
        self._unit = Unit("", self.tree, decode_source(text))
        self._parents: Dict[ast.AST, ast.AST] = {
            inner: node for node in ast.walk(self.tree) for inner in ast.iter_child_nodes(node)
        }

        self._attributes = {
            node.attr for node in self._parents if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        self.modules = _collect_held(self._parents, NAMES["modules of one tensor"])
        self.parameters = _collect_held(self._parents, frozenset({"Parameter"}))
        self._roots = _collect_roots(self._parents)

    def imports(self, library: str) -> bool:
        """Tell whether the file imports a library."""
        imported = (node for node in self._parents if isinstance(node, ast.Import))
        return any(alias.name.partition(".")[0] == library for node in imported for alias in node.names)

    def find_parent(self, node: ast.AST) -> Optional[ast.AST]:
        """Find what a node stands in; the index of a subscript stands in the subscript, as it does since Python 3.9."""
        parent = self._parents.get(node)
        while type(parent).__name__ in ("Index", "ExtSlice"):
            parent = self._parents.get(parent) if parent is not None else None
        return parent

    def find_function(self, node: ast.AST) -> Optional[Function]:
        """Find the function whose body a node runs in; none for a default, a decorator, a lambda or a class in it."""
        inner, outer = node, self.find_parent(node)
        while outer is not None and not isinstance(outer, (*_FUNCTION, ast.Lambda, ast.ClassDef)):
            inner, outer = outer, self.find_parent(outer)
        is_in_body = isinstance(outer, _FUNCTION) and any(inner is statement for statement in outer.body)
        return outer if isinstance(outer, _FUNCTION) and is_in_body else None

    def is_repeated(self, node: ast.AST) -> bool:
        """Tell whether a loop may come to a node again."""
        outer = self.find_parent(node)
        while outer is not None and not isinstance(outer, (*_FUNCTION, ast.For, ast.AsyncFor, ast.While)):
            outer = self.find_parent(outer)
        return isinstance(outer, (ast.For, ast.AsyncFor, ast.While))

    def is_tried(self, place: Place) -> bool:
        """Tell whether a statement stands alone in a `try`, or in a `with` that waits for an error."""
        for node in self._parents:
            alone = node.body[0] if isinstance(node, (ast.Try, ast.With)) and len(node.body) == 1 else None
            if alone is not None and alone.lineno <= place.line <= (alone.end_lineno or alone.lineno):
                if isinstance(node, ast.Try) or isinstance(node, ast.With) and any(map(_waits, node.items)):
                    return True
        return False

    def is_of_module(self, call: ast.Call) -> bool:
        """Tell whether a call is of an attribute of `self` that the file assigns."""
        function = call.func
        of_self = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "self"
        return of_self and isinstance(function, ast.Attribute) and function.attr in self._attributes

    def is_of_torch(self, call: ast.Call) -> bool:
        """Tell whether a call is of torch's functions, of a module of `self`, or of what either returns."""
        root: ast.AST = call.func
        while isinstance(root, (ast.Attribute, ast.Call)):
            root = root.value if isinstance(root, ast.Attribute) else root.func
        return isinstance(root, ast.Name) and root.id in self._roots

    def find_call(self, place: Place) -> Optional[ast.Call]:
        """Find the outermost call that begins at a place, and ends there if that is known."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and node.lineno == place.line)
        fitting = [node for node in calls if self.begins_at(node, place)]
        end = (place.end_line or place.line, place.end_column)
        spans = [(node, self._unit.place_of(node)) for node in fitting]
        ends = [node for node, span in spans if (span.end_line, span.end_column) == end]
        return next(iter([*ends, *fitting]), None)

    def begins_at(self, node: ast.AST, place: Place) -> bool:
        """Tell whether a node begins where a place does, counted in characters."""
        span = self._unit.place_of(node)
        return (span.line, span.column) == (place.line, place.column)

    def stays_with_torch(self, node: ast.AST) -> bool:
        """Tell whether no use of an expression needs more of it than being a tensor on its device."""
        return self._stays(node, set())

    def is_aliased(self, place: Place, name: str) -> bool:
        """Tell whether the function around a place has another name for what a name holds, or for a view of it."""
        around = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and node.lineno <= place.line <= (node.end_lineno or 0)
        ]
        assigned = ast.walk(around[-1] if around else self.tree)
        return any(
            isinstance(node, (ast.Assign, ast.AnnAssign)) and node.lineno < place.line and _shares(node, name)
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
            return self.is_of_torch(parent) and self._stays(parent, seen)
        if isinstance(parent, ast.Assign):
            inside = [part for target in parent.targets for part in ast.walk(target)]
            targets = [part for part in inside if not isinstance(part, (ast.Tuple, ast.List, ast.expr_context))]
            return all(isinstance(target, ast.Name) and self._follow(target, seen) for target in targets)
        return isinstance(parent, _ENDS) or isinstance(parent, _PASSING) and self._stays(parent, seen)

    def _follow(self, target: ast.Name, seen: Set[str]) -> bool:
        """Follow a variable into its uses; those of another one of the name count as well."""
        if target.id in seen:
            return True
        seen.add(target.id)
        loads = (node for node in ast.walk(self.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        return all(self._stays(node, seen) for node in loads if node.id == target.id)


@functools.lru_cache(maxsize=4)
def read_tree(text: bytes) -> SourceTree:
    """Parse a file, once for all its findings; raise SyntaxError or ValueError where Python cannot."""
    return SourceTree(text)


def _waits(item: ast.withitem) -> bool:
    """Tell `pytest.raises(...)`, `self.assertRaises(...)` and `contextlib.suppress(...)`."""
    function = getattr(item.context_expr, "func", None)
    name = getattr(function, "attr", getattr(function, "id", ""))
    return name == "suppress" or "raises" in name.lower()


def _collect_roots(nodes: Iterable[ast.AST]) -> FrozenSet[str]:
    """Collect the names by which a file calls torch: the usual ones, if it does not import something else by them."""
    roots = set(_OF_TORCH)
    for node in nodes:
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for alias in node.names:
            origin = getattr(node, "module", None) or alias.name
            name = alias.asname or alias.name.partition(".")[0]
            (roots.add if origin.partition(".")[0] in ("torch", "poptorch") else roots.discard)(name)
    return frozenset(roots)


def _collect_held(nodes: Iterable[ast.AST], classes: FrozenSet[str]) -> FrozenSet[str]:
    """Collect the attributes of `self` that hold what these classes of `torch.nn` make, and nothing else."""
    held: Dict[str, Set[bool]] = {}
    for node in nodes:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute):
                function = getattr(getattr(node, "value", None), "func", None)
                of_nn = isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "nn"
                held.setdefault(target.attr, set()).add(of_nn and getattr(function, "attr", "") in classes)
    return frozenset(name for name, known in held.items() if known == {True})


def _shares(assignment: Union[ast.Assign, ast.AnnAssign], name: str) -> bool:
    """Tell whether an assignment gives what a name holds another name, or gives it what has one."""
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    viewed = _find_viewed(assignment.value)
    return viewed == name or viewed is not None and any(getattr(target, "id", "") == name for target in targets)


def _find_viewed(node: Optional[ast.AST]) -> Optional[str]:
    """Find the name of what an expression is, or is a part of, or may be a view of."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):
            is_view = isinstance(node.func, ast.Attribute) and node.func.attr in NAMES["views"]
            node = node.func if is_view else None
        else:
            node = node.value
    return node.id if isinstance(node, ast.Name) else None
