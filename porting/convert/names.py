"""Say which names statements read and assign, so that a loss can be cut out of a loop and made a function.

Names are counted as written: an element or attribute that is assigned, and a method that works in place, change the
name that they belong to.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Mapping, Sequence, Set

from porting.convert.trees import write_node

__all__ = [
    "collect_reads",
    "collect_writes",
    "drop_moves",
    "get_root",
    "iter_chains",
    "iter_units",
    "parse_expression",
    "substitute",
]

_MOVES = re.compile(
    r"\.cuda\([^()]*\)|\.to\((device=)?((self|args|opt|config|cfg)\.)*(\w*device|['\"]cuda(:\d+)?['\"])"
    r"(, non_blocking=\w+)?\)"
)
_OF_TENSORS = ("T", "data", "device", "dtype", "is_cuda", "mT", "ndim", "shape")


def get_root(node: ast.AST) -> str:
    """Return the name that an attribute or element belongs to; empty for anything else.

    >>> get_root(ast.parse("self.net[0].weight", mode="eval").body)
    'self'
    """
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def parse_expression(text: str) -> ast.expr:
    """Parse an expression."""
    return ast.parse(text, mode="eval").body


def collect_reads(*nodes: ast.AST) -> Set[str]:
    """Collect the names that are read; those that a comprehension, loop or lambda makes are its own."""
    found: Set[str] = set()
    own = _collect_turns(*nodes)
    for node in (inner for one in nodes for inner in ast.walk(one)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.AugAssign):
            found.add(get_root(node.target))
        elif isinstance(node, ast.Lambda):
            own |= {one.arg for one in node.args.args}
    return found - own - {""}


def _collect_turns(*nodes: ast.AST) -> Set[str]:
    """Collect the names that comprehensions and loops give to what they go through."""
    inside = [one for node in nodes for one in ast.walk(node) if isinstance(one, (ast.comprehension, ast.For))]
    return {name.id for one in inside for name in ast.walk(one.target) if isinstance(name, ast.Name)}


def collect_writes(node: ast.AST) -> Set[str]:
    """Collect the names that a statement assigns or changes."""
    found: Set[str] = set()
    own = _collect_turns(node)
    for one in ast.walk(node):
        if isinstance(one, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(one.ctx, ast.Store):
            found.add(get_root(one))
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute):
            method = one.func.attr
            if method in ("append", "extend", "update") or method.endswith("_") and not method.endswith("__"):
                found.add(get_root(one.func))
    return found - own - {""}


def drop_moves(text: str) -> str:
    """Leave out of an expression the moves to a device that a program names: a port takes tensors of the host.

    >>> drop_moves("f(x.to(self.device), y.cuda().to(z.device))")
    'f(x, y.to(z.device))'
    """
    return _MOVES.sub("", text)


def iter_units(block: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Iterate over the statements of a block in their order, and into `with` blocks; others are taken whole."""
    for statement in block:
        if isinstance(statement, ast.With):
            yield from iter_units(statement.body)
        else:
            yield statement


def iter_chains(node: ast.AST, names: Set[str]) -> Iterator[ast.expr]:
    """Iterate over what is read of some names: `batch.label`, `batch["y"]`, or the name where it is a tensor itself.

    >>> tree = ast.parse("f(out, batch.y.view(-1), target.shape[0])")
    >>> [write_node(one) for one in iter_chains(tree, {"batch", "target"})]
    ['batch.y', 'target']
    """
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and _is_chain(child) and get_root(child) in names:
            yield child
        elif isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute):
            holder = child.func.value
            inner = ast.Tuple([holder, *child.args, *(one.value for one in child.keywords)], ast.Load())
            yield from iter_chains(inner, names)
        else:
            yield from iter_chains(child, names)


def _is_chain(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return node.attr not in _OF_TENSORS and isinstance(node.ctx, ast.Load) and _is_chain(node.value)
    is_key = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
    return is_key and isinstance(node.slice.value, (str, int)) and _is_chain(node.value)  # type: ignore[attr-defined]


class _Substitution(ast.NodeTransformer):
    def __init__(self, others: Mapping[str, str]) -> None:
        self._others = others

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.expr) and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            text = write_node(node)
            if text in self._others:
                return parse_expression(self._others[text])
        return super().generic_visit(node)


def substitute(node: ast.AST, others: Mapping[str, str]) -> List[str]:
    """Return the lines of a statement or expression in which some expressions, as texts, have become others."""
    copied = ast.parse(write_node(node))
    return write_node(_Substitution(others).visit(copied)).split("\n")
