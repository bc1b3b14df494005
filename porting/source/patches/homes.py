"""Tensors whose device a function can name for one that it makes, and whether a program stays the same by it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from porting.diagnostics import Place
from porting.source.library import NAMES
from porting.source.patches.tensors import Tensors, list_arguments
from porting.source.patches.uses import Function, SourceTree

__all__ = ["Home", "find_home"]


@dataclass(frozen=True)
class Home:
    """A tensor of a function, by its name, and whether it is proven that another can be made on its device."""

    tensor: str
    is_proven: bool


@dataclass(frozen=True)
class _Made:
    """A tensor that a factory has made, on its way through a function.

    What is random has other numbers on another device. Something whole has a dimension, so that torch lets it meet no
    tensor of another device. What has met no other tensor may be on the host for its caller.
    """

    is_random: bool
    is_whole: bool
    has_met: bool = False


# where they are is said by another argument
_PLACED = frozenset({"out", "generator", "pin_memory", "device", "layout"})


def find_home(source: SourceTree, place: Place, *, is_named: bool = False) -> Optional[Home]:
    """Find the tensor whose device the factory at a place can name, a proven one first; None where there is none.

    A factory that names a device has one only where `is_named`: it then names it otherwise.

    It is proven where the new tensor meets that one: on one device the program is as it was, on two it never ran.
    Otherwise all that is done with it has to be torch's, which is the same on each device.
    """
    call = source.find_call(place)
    function = source.find_function(call) if call is not None else None
    if call is None or function is None or not _takes_device(call, is_named=is_named):
        return None
    last_line = float("inf") if source.is_repeated(call) else call.lineno
    tensors = Tensors(function, modules=source.modules, last_line=last_line)
    indexed = _find_indexed(source, call)
    is_tensor = tensors.find_roots(ast.Name(indexed, ast.Load())) is not None
    others = [name for name in tensors.parameters if name != indexed]
    candidates = [*([indexed] if is_tensor else []), *others]
    for name in candidates:
        if _Way(source, function, tensors, name).is_given(call):
            return Home(name, is_proven=True)
    return Home(candidates[0], is_proven=False) if candidates else None


def _takes_device(call: ast.Call, *, is_named: bool = False) -> bool:
    """Tell whether a factory can be given a device: not if another argument tells it, nor `normal(mean, std)`."""
    words = {word.arg for word in call.keywords if word.arg != "device" or not is_named}
    if words & _PLACED or None in words:
        return False
    return _name_called(call) != "normal" or "size" in words


def _describe(call: ast.Call) -> _Made:
    return _Made(is_random=_name_called(call) in NAMES["random"], is_whole=_has_dimension(call))


def _has_dimension(call: ast.Call) -> bool:
    """Tell whether a factory makes no single number."""
    name, first = _name_called(call), call.args[0] if call.args else None
    if name in ("arange", "eye", "linspace", "logspace", "randperm", "tril_indices", "triu_indices"):
        return True
    if name in ("zeros", "ones", "empty", "rand", "randn"):
        shape = next((word.value for word in call.keywords if word.arg == "size"), first)
        is_number = isinstance(shape, (ast.BinOp, ast.Constant)) or _is_size(shape)
        return len(call.args) > 1 or is_number or isinstance(shape, (ast.Tuple, ast.List)) and bool(shape.elts)
    sizes = [part for part in list_arguments(call) if isinstance(part, (ast.Tuple, ast.List))]
    return any(part.elts for part in sizes)


def _is_size(node: Optional[ast.AST]) -> bool:
    """Tell `x.size()`, `x.shape`, parts of them, and `len(x)`."""
    if isinstance(node, ast.Call):
        return _name_called(node) in ("size", "len")
    shape = node.value if isinstance(node, (ast.Subscript, ast.Starred)) else node
    return getattr(shape, "attr", "") == "shape" or isinstance(shape, ast.Call) and _name_called(shape) == "size"


def _is_factory(call: ast.Call) -> bool:
    """Tell a function of torch that makes a tensor where it is told to."""
    of_torch = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "torch"
    return of_torch and _name_called(call) in NAMES["movable factories"] and _takes_device(call)


def _name_called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _find_indexed(source: SourceTree, call: ast.Call) -> str:
    """Find the name of what is indexed by the innermost index around a call; empty where there is none."""
    node: Optional[ast.AST] = call
    while node is not None and not isinstance(node, ast.stmt):
        parent = source.find_parent(node)
        if isinstance(parent, ast.Subscript) and node is not parent.value and isinstance(parent.value, ast.Name):
            return parent.value.id
        node = parent
    return ""


class _Way:
    """The way of a new tensor through a function, if it is made where a tensor of the function is."""

    def __init__(self, source: SourceTree, function: Function, tensors: Tensors, home: str) -> None:
        self._source = source
        self._tensors = tensors
        self._home = home
        # what is asked again on the way counts as given
        self._given: Dict[ast.Call, bool] = {}
        self._beside: Dict[str, bool] = {}
        self._seen: Set[Tuple[str, _Made]] = set()
        nodes = list(ast.walk(function))
        self._names = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        self._has_moves = any(isinstance(node, ast.Call) and self._moves(node) for node in nodes)
        self._is_local = not any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in nodes)

    def is_given(self, call: ast.Call) -> bool:
        """Tell whether a factory can be given the device, with those whose tensors meet its own."""
        self._given[call] = True
        return self.is_same(call, _describe(call))

    def is_same(self, node: Optional[ast.AST], made: _Made) -> bool:
        """Tell whether all that is done with an expression is the same wherever its tensor is made."""
        parent = self._source.find_parent(node) if node is not None else None
        go = _STEPS.get(type(parent))
        return node is not None and parent is not None and go is not None and go(self, parent, node, made)

    def _moves(self, call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Attribute) or call.func.attr not in ("cpu", "cuda", "to", "pin_memory"):
            return False
        return self._tensors.find_roots(call) is None

    def _meet(self, others: List[ast.expr], made: _Made) -> Optional[_Made]:
        """Say what becomes of it beside others: None where one of them may be a tensor of another device."""
        near = [other for other in others if self._is_near(other)]
        if not all(other in near or self._tensors.is_number(other) or self._is_beside(other) for other in others):
            return None
        return replace(made, has_met=made.has_met or bool(near))

    def _is_near(self, node: ast.AST) -> bool:
        """Tell whether an expression is a tensor where the home is, or what a module makes of one."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return bool(node.elts) and all(self._is_near(part) or self._is_beside(part) for part in node.elts)
        if isinstance(node, ast.Call) and self._source.is_of_module(node):
            return any(self._is_near(part) for part in list_arguments(node))
        return self._home in (self._tensors.find_roots(node) or ())

    def _is_beside(self, node: ast.AST) -> bool:
        """Tell what modules and their parameters give, if nothing is moved, and what other factories make."""
        if isinstance(node, ast.Name):
            if node.id not in self._beside:
                self._beside[node.id] = True
                values = self._tensors.list_values(node.id)
                self._beside[node.id] = all(value is not None and self._is_beside(value) for value in values)
            return self._beside[node.id]
        if isinstance(node, ast.Subscript):
            return self._is_beside(node.value)
        if isinstance(node, ast.Attribute):
            return not self._has_moves and node.attr in self._source.parameters
        if not isinstance(node, ast.Call):
            return False
        return self._source.is_of_module(node) and not self._has_moves or self._is_given_too(node)

    def _is_given_too(self, call: ast.Call) -> bool:
        if call not in self._given:
            is_alone = all(call.lineno != other.lineno for other in self._given)
            self._given[call] = True
            self._given[call] = (
                is_alone and _is_factory(call) and self.is_same(call, replace(_describe(call), is_whole=False))
            )
        return self._given[call]

    def _go_on(self, node: ast.AST, others: List[ast.expr], made: _Made, *, proves: bool = False) -> bool:
        beside = self._meet(others, made)
        if beside is None:
            return False
        has_met_home = any(self._home in (self._tensors.find_roots(other) or ()) for other in others)
        if proves and has_met_home and made.is_whole:
            # on another device the program would have failed here
            return True
        return self.is_same(node, beside)

    def _in_arithmetic(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        parts = [part for part in ast.iter_child_nodes(parent) if isinstance(part, ast.expr) and part is not node]
        return self._go_on(parent, parts, made, proves=True)

    def _in_choice(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, ast.IfExp)
        if node is parent.test:
            return not made.is_random
        other = parent.orelse if node is parent.body else parent.body
        has_met = made.has_met or any(isinstance(part, ast.Call) for part in ast.walk(other))
        return self.is_same(parent, replace(made, has_met=has_met))

    def _in_index(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, ast.Subscript)
        if node is not parent.value:
            # an index may be on the host or where the tensor is
            return not made.is_random and self._home in (self._tensors.find_roots(parent.value) or ())
        if not isinstance(parent.ctx, ast.Load):
            return not made.is_random
        return self.is_same(parent, replace(made, is_whole=False))

    def _in_sequence(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        around = self._source.find_parent(parent)
        if isinstance(around, ast.Subscript):
            return self.is_same(parent, made)
        if not isinstance(around, ast.Call) or not self._source.is_of_torch(around):
            return self.is_same(parent, made)
        others = [part for part in getattr(parent, "elts", []) if part is not node]
        return self._go_on(parent, others, made, proves=_name_called(around) in ("cat", "concat", "stack"))

    def _pass(self, parent: ast.AST, _node: ast.AST, made: _Made) -> bool:
        return self.is_same(parent, made)

    def _in_attribute(self, parent: ast.AST, _node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, ast.Attribute)
        call = self._source.find_parent(parent)
        if not isinstance(call, ast.Call) or call.func is not parent:
            if parent.attr in ("data", "T", "mT", "real", "imag"):
                return self.is_same(parent, made)
            return parent.attr in ("shape", "dtype", "ndim", "requires_grad")
        if parent.attr in _SHAPES:
            return True
        if parent.attr in ("cpu", "cuda") or parent.attr == "to" and _names_device(call):
            # from wherever it was
            return not made.is_random
        if parent.attr in NAMES["tensor host methods"] or self._moves(call):
            return False
        keeps = parent.attr in NAMES["views"] or parent.attr in NAMES["casts"] or parent.attr == "repeat"
        is_random = made.is_random or parent.attr.rstrip("_") in NAMES["random"]
        changed = replace(made, is_random=is_random, is_whole=made.is_whole and keeps)
        return self.is_same(call, changed) if keeps else self._go_on(call, list_arguments(call), changed)

    def _in_call(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, ast.Call)
        name, others = _name_called(parent), [part for part in list_arguments(parent) if part is not node]
        receiver = parent.func.value if isinstance(parent.func, ast.Attribute) else None
        if name == "Variable":
            return self.is_same(parent, made)
        if self._home in (self._tensors.find_roots(receiver) or ()):
            if name == "copy_":
                # from anywhere
                return not made.is_random
            if name in NAMES["meeting"] and made.is_whole:
                return True
            return self.is_same(parent, replace(made, is_whole=False, has_met=True))
        if not self._source.is_of_torch(parent) or "drop" in name:
            return False
        of_self = getattr(receiver, "id", "") == "self"
        if of_self and not self._source.is_of_module(parent):
            # a method may do anything with it
            return False
        is_random = made.is_random or name in NAMES["random"]
        changed = replace(made, is_random=is_random, is_whole=False, has_met=made.has_met or of_self)
        return self._go_on(parent, others, changed)

    def _at_end(self, parent: ast.AST, _node: ast.AST, made: _Made) -> bool:
        is_kept = isinstance(parent, ast.Expr) or made.has_met
        return is_kept and not made.is_random and not self._has_moves

    def _in_change(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, ast.AugAssign)
        if self._home in (self._tensors.find_roots(parent.target) or ()):
            return made.is_whole or self._at_end(parent, node, made)
        if isinstance(parent.target, ast.Name) and parent.target is not node:
            return self._follow([parent.target], made)
        return False

    def _in_assignment(self, parent: ast.AST, node: ast.AST, made: _Made) -> bool:
        assert isinstance(parent, (ast.Assign, ast.AnnAssign))
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return self._follow(targets, made)

    def _follow(self, targets: Sequence[ast.expr], made: _Made) -> bool:
        names: Dict[str, _Made] = {}
        for target in targets:
            parts = [part for part in ast.walk(target) if not isinstance(part, (ast.expr_context, ast.Tuple, ast.List))]
            if not all(isinstance(part, ast.Name) for part in parts):
                return self._is_into_home(target, made)
            is_whole = made.is_whole and isinstance(target, ast.Name)
            names.update({getattr(part, "id", ""): replace(made, is_whole=is_whole) for part in parts})
        return self._is_local and all(self._follow_name(*item) for item in names.items())

    def _is_into_home(self, target: ast.expr, made: _Made) -> bool:
        """Tell `x[i] = y`, which copies from anywhere."""
        is_part = isinstance(target, ast.Subscript) and self._home in (self._tensors.find_roots(target.value) or ())
        return is_part and not made.is_random

    def _follow_name(self, name: str, made: _Made) -> bool:
        if (name, made) in self._seen:
            return True
        self._seen.add((name, made))
        return all(self.is_same(node, made) for node in self._names if node.id == name)


_SHAPES = frozenset({"size", "dim", "numel", "ndimension", "nelement"})


def _names_device(call: ast.Call) -> bool:
    """Tell `to(device)`, `to(x.device)` and `to("cpu")`."""
    first = call.args[0] if call.args else None
    name = getattr(first, "id", getattr(first, "attr", ""))
    return name == "device" or isinstance(first, ast.Constant) and isinstance(first.value, str)


_Step = Callable[[_Way, ast.AST, ast.AST, _Made], bool]
_STEPS: Mapping[type, _Step] = {
    ast.AnnAssign: _Way._in_assignment,
    ast.Assign: _Way._in_assignment,
    ast.Attribute: _Way._in_attribute,
    ast.AugAssign: _Way._in_change,
    ast.BinOp: _Way._in_arithmetic,
    ast.Call: _Way._in_call,
    ast.Compare: _Way._in_arithmetic,
    ast.Expr: _Way._at_end,
    ast.IfExp: _Way._in_choice,
    ast.List: _Way._in_sequence,
    ast.Return: _Way._at_end,
    ast.Subscript: _Way._in_index,
    ast.Tuple: _Way._in_sequence,
    ast.UnaryOp: _Way._pass,
    ast.keyword: _Way._pass,
}
