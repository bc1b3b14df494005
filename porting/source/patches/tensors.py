"""Names that hold tensors in a function, whatever it is called with, and the tensors that an expression is made of."""

from __future__ import annotations

import ast
from typing import Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from porting.source.library import NAMES
from porting.source.patches.uses import Function

__all__ = ["Tensors", "list_arguments"]

_Roots = Optional[FrozenSet[str]]
_NO_ROOTS: FrozenSet[str] = frozenset()
_ASKING_WHAT_IT_IS = frozenset({"isinstance", "hasattr", "getattr", "type", "callable"})


class Tensors:
    """What is known of the names in a function: its parameters that are tensors in each call, and what is made of them.

    A parameter is one if it is annotated, or used as nothing but a tensor can be. A name that is bound again holds
    one only if everything that it is bound to is one. `modules` are attributes that turn one tensor into another;
    what is bound behind `last_line` counts for no parameter.
    """

    def __init__(self, function: Function, *, modules: FrozenSet[str], last_line: float) -> None:
        self._modules = modules
        own = list(_iter_own_nodes(function))
        asked = {name for node in own for name in _iter_asked(node)}
        required = function.args.args[: len(function.args.args) - len(function.args.defaults)]
        required = [part for part in required if part.arg not in ("self", "cls")]
        given = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
        in_forward = NAMES["of tensors alone"] if function.name == "forward" else frozenset()
        telling = NAMES["of tensors, not arrays"] | in_forward
        used = {name for node in own for name in self._iter_used(node, telling)}
        named = {part.arg for part in required if part.arg not in asked and _may_be_one(part, used)}
        self._known: Dict[str, _Roots] = {name: frozenset([name]) if name in named else None for name in given}
        self._values = _collect_values(function, float("inf"))
        before = _collect_values(function, last_line)
        self.parameters: List[str] = [
            part.arg for part in required if part.arg in named and self._keeps(part.arg, before)
        ]
        bound_anew = [name for name in named if not self._keeps(name, self._values)]
        self._known = {
            name: None if name in bound_anew else roots for name, roots in self._known.items() if name in given
        }

    def find_roots(self, node: Optional[ast.AST]) -> _Roots:
        """Find the names of tensors that an expression is made of; None if it may be anything but a tensor."""
        if isinstance(node, ast.Name):
            return self._find_of_name(node.id)
        if isinstance(node, (ast.BinOp, ast.Compare)):
            sides = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.left, *node.comparators]
            return _join([self.find_roots(side) for side in sides])
        if isinstance(node, ast.UnaryOp):
            return None if isinstance(node.op, ast.Not) else self.find_roots(node.operand)
        if isinstance(node, ast.Subscript):
            several = getattr(node.value, "func", None)
            is_one_of = isinstance(several, ast.Attribute) and several.attr in NAMES["giving tensors"]
            return self.find_roots(several.value if isinstance(several, ast.Attribute) and is_one_of else node.value)
        if isinstance(node, ast.Attribute):
            return self.find_roots(node.value) if node.attr in ("data", "T", "mT") else None
        return self._find_of_call(node) if isinstance(node, ast.Call) else None

    def is_number(self, node: ast.AST) -> bool:
        """Tell whether an expression is a number, a shape or the like, and no tensor."""
        if isinstance(node, ast.Name):
            # what is computed from itself is no number for sure
            values = self._values.pop(node.id, [])
            is_one = bool(values) and all(value is not None and self.is_number(value) for value in values)
            self._values[node.id] = values or [None]
            return is_one
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            return name in ("size", "len", "int", "float", "numel", "dim")
        if isinstance(node, ast.Attribute):
            return node.attr in ("shape", "dtype", "ndim", "pi", "inf") or getattr(node.value, "id", "") == "torch"
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Subscript)):
            parts = [node.value] if isinstance(node, ast.Subscript) else list(ast.iter_child_nodes(node))
            return all(self.is_number(part) for part in parts if isinstance(part, ast.expr))
        return isinstance(node, ast.Constant)

    def list_values(self, name: str) -> List[Optional[ast.AST]]:
        """List what a name is bound to; None stands for what is unknown."""
        return list(self._values.get(name, [None]))

    def _find_of_name(self, name: str) -> _Roots:
        if name not in self._known:
            # what is bound to itself adds nothing
            self._known[name] = _NO_ROOTS
            found = [self.find_roots(value) for value in self._values.get(name, [None])]
            is_one = all(roots is not None for roots in found)
            self._known[name] = frozenset([name]).union(*filter(None, found)) if is_one else None
        return self._known[name]

    def _find_of_call(self, call: ast.Call) -> _Roots:
        if not isinstance(call.func, ast.Attribute):
            return None
        name, arguments = call.func.attr.rstrip("_"), list_arguments(call)
        if name in ("to", "type_as"):
            other = arguments[0] if len(arguments) == 1 else None
            if getattr(other, "attr", "") == "dtype" or getattr(getattr(other, "value", None), "id", "") == "torch":
                return self.find_roots(call.func.value)
            # where another tensor is
            is_device = isinstance(other, ast.Attribute) and other.attr == "device"
            return self.find_roots(other.value if isinstance(other, ast.Attribute) and is_device else other)
        if isinstance(call.func.value, ast.Name) and call.func.value.id in ("torch", "F", "self"):
            gives_one = name in (self._modules if call.func.value.id == "self" else NAMES["giving one tensor"])
            return (_join([self.find_roots(part) for part in arguments]) or _NO_ROOTS) if gives_one else None
        return self.find_roots(call.func.value) if name in NAMES["giving one tensor"] else None

    def _keeps(self, name: str, values: Dict[str, List[Optional[ast.AST]]]) -> bool:
        return all(self.find_roots(value) is not None for value in values.get(name, ()))

    def _iter_used(self, node: ast.AST, telling: FrozenSet[str]) -> Iterator[str]:
        """Yield the names that a node uses as only tensors are used."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in telling:
            yield node.value.id
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first, root = node.args[0], getattr(node.func.value, "id", "")
            taking = self._modules if root == "self" else NAMES["taking a tensor first"]
            if isinstance(first, ast.Name) and root in ("torch", "F", "self") and node.func.attr in taking:
                yield first.id
            if isinstance(first, ast.Name) and node.func.attr == "type_as":
                yield first.id


def list_arguments(call: ast.Call) -> List[ast.expr]:
    """List what a call is given, by place or by name."""
    return [*call.args, *(word.value for word in call.keywords)]


def _join(found: List[_Roots]) -> _Roots:
    known = [roots for roots in found if roots is not None]
    return _NO_ROOTS.union(*known) if known else None


def _iter_own_nodes(function: Function) -> Iterator[ast.AST]:
    """List the nodes of a function's body, without those of the functions in it."""
    left: List[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            left += ast.iter_child_nodes(node)


def _collect_values(function: Function, last_line: float) -> Dict[str, List[Optional[ast.AST]]]:
    """Collect what each name is bound to; None for what is bound in another way than by an assignment to it alone."""
    values: Dict[str, List[Optional[ast.AST]]] = {}
    plain: Set[ast.AST] = set()
    nodes = [node for node in ast.walk(function) if getattr(node, "lineno", 0) <= last_line]
    for node in nodes:
        if isinstance(node, ast.AugAssign):
            # `x += y` is what `x` was
            plain.add(node.target)
        for target, value in _iter_pairs(node):
            plain.add(target)
            values.setdefault(target.id, []).append(value)
    for node in nodes:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node not in plain:
            values.setdefault(node.id, []).append(None)
    return values


def _iter_pairs(node: ast.AST) -> Iterator[Tuple[ast.Name, ast.AST]]:
    """List the names that an assignment or a loop binds, with their values: parts of what is unpacked or gone over."""
    if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
        yield node.target, _take_part(node.iter)
    for target in node.targets if isinstance(node, ast.Assign) else ():
        value = node.value if isinstance(node, ast.Assign) else target
        if isinstance(target, ast.Name):
            yield target, value
        elif isinstance(target, ast.Tuple):
            parts = [part for part in ast.walk(target) if isinstance(part, ast.Name)]
            values = getattr(value, "elts", [])
            is_pairwise = len(values) == len(target.elts) == len(parts)
            yield from zip(parts, values if is_pairwise else [_take_part(value)] * len(parts))


def _take_part(value: ast.expr) -> ast.expr:
    return ast.Subscript(value=value, slice=ast.Constant(0), ctx=ast.Load())


def _may_be_one(argument: ast.arg, used: Set[str]) -> bool:
    """Tell whether a parameter is annotated as a tensor, or has no annotation and is used as one."""
    if argument.annotation is None:
        return argument.arg in used
    return getattr(argument.annotation, "id", getattr(argument.annotation, "attr", "")) == "Tensor"


def _iter_asked(node: ast.AST) -> Iterator[str]:
    """Yield the names of which the program asks whether they are tensors, or there at all."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _ASKING_WHAT_IT_IS:
        yield from (part.id for part in node.args[:1] if isinstance(part, ast.Name))
    if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
        yield from (part.id for part in (node.left, *node.comparators) if isinstance(part, ast.Name))
    if isinstance(node, (ast.If, ast.IfExp)) and isinstance(node.test, ast.Name):
        yield node.test.id
