"""Texts that a program makes of constants and of its own path: worked out from the syntax, without running anything."""

from __future__ import annotations

import ast
import itertools
import os
from typing import Dict, Iterator, List, Mapping, Optional, Tuple

__all__ = ["ANYTHING", "evaluate_text", "list_added_folders", "name_from_here", "read_names"]

ANYTHING = "*"
"""Stands in a text for a part that nobody knows."""

Names = Mapping[str, List[str]]


def evaluate_text(node: Optional[ast.AST], names: Names, file: str) -> List[str]:
    """List what a text or path may be; a part of it that is not known is `ANYTHING`, and of the whole nothing is.

    >>> evaluate_text(ast.parse("f'models.{name}' + '_net'", mode="eval").body, {}, "train.py")
    ['models.*_net']
    """
    try:
        found = _Evaluation(names, file).evaluate(node)
    except RecursionError:  # of a sum of thousands
        return []
    return [text for text in found if text.strip(ANYTHING)]


_MOST_TEXTS = 64
_LONGEST = 4096


class _Evaluation(ast.NodeVisitor):
    """What expressions of a file may be as texts; each visit gives them one by one."""

    def __init__(self, names: Names, file: str) -> None:
        self._names = names
        self._file = os.path.abspath(file)

    def evaluate(self, node: Optional[ast.AST]) -> List[str]:
        # what doubles from line to line grows without end
        found = [] if node is None else itertools.islice(self.visit(node), _MOST_TEXTS)
        return [text for text in found if len(text) < _LONGEST] or [ANYTHING]

    def generic_visit(self, node: ast.AST) -> Iterator[str]:
        return iter([])

    def visit_Constant(self, node: ast.Constant) -> Iterator[str]:
        return iter([node.value] if isinstance(node.value, str) else [])

    def visit_Name(self, node: ast.Name) -> Iterator[str]:
        return iter([self._file] if node.id == "__file__" else self._names.get(node.id, []))

    def visit_BinOp(self, node: ast.BinOp) -> Iterator[str]:
        for left, right in itertools.product(self.evaluate(node.left), self.evaluate(node.right)):
            if isinstance(node.op, ast.Add):
                yield left + right
            elif isinstance(node.op, ast.Div):
                yield os.path.join(left, right)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> Iterator[str]:
        parts = [getattr(part, "value", None) if isinstance(part, ast.FormattedValue) else part for part in node.values]
        return map("".join, itertools.product(*map(self.evaluate, parts)))

    def visit_Attribute(self, node: ast.Attribute) -> Iterator[str]:
        if node.attr == "parent":
            return map(os.path.dirname, self.evaluate(node.value))
        known = {"sep": os.sep, "pardir": os.pardir, "curdir": os.curdir}.get(node.attr)
        return iter([] if known is None else [known])

    def visit_Subscript(self, node: ast.Subscript) -> Iterator[str]:
        index = getattr(node.slice, "value", None)
        number = getattr(index, "value", index)
        if not isinstance(number, int) or not isinstance(node.value, ast.Attribute):
            return
        if node.value.attr == "parents":
            for path in self.evaluate(node.value.value):
                for _ in range(number + 1):
                    path = os.path.dirname(path)
                yield path
        elif node.value.attr == "path" and number == 0:
            yield os.path.dirname(self._file)

    def visit_Call(self, node: ast.Call) -> Iterator[str]:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        given = list(map(self.evaluate, node.args))
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in ("getcwd", "cwd"):
            return iter([os.getcwd()])
        if name in ("getfile", "getsourcefile"):
            return iter([self._file])
        if name == "dirname" and given:
            return map(os.path.dirname, given[0])
        if name in ("join", "joinpath", "Path", "PurePath") and given:
            base = [self.evaluate(receiver)] if name == "joinpath" and receiver is not None else []
            return itertools.starmap(os.path.join, itertools.product(*base, *given))
        if name in ("abspath", "realpath", "normpath", "expanduser", "str", "fspath") and given:
            return map(os.path.expanduser if name == "expanduser" else str, given[0])
        if name in ("resolve", "absolute", "as_posix", "expanduser") and receiver is not None:
            return iter(self.evaluate(receiver))
        return iter([])


def read_names(tree: ast.AST, file: str) -> Dict[str, List[str]]:
    """Read what the names of a file hold as texts, by the last line that says so."""
    names: Dict[str, List[str]] = {}
    for node in _list_in_order(tree):
        _read_assignment(node, names, file)
    return names


def _list_in_order(tree: ast.AST) -> List[ast.AST]:
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.Assign, ast.AugAssign, ast.For, ast.Call))]
    return sorted(nodes, key=lambda node: (getattr(node, "lineno", 0), isinstance(node, ast.Call)))


def _read_assignment(node: ast.AST, names: Dict[str, List[str]], file: str) -> None:
    """Remember the texts that a name is given, by an assignment or a loop over constants."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Name):
                names[target.id] = evaluate_text(node.value, names, file)
    elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        elements = node.iter.elts if isinstance(node.iter, (ast.List, ast.Tuple)) else []
        names[node.target.id] = [text for part in elements for text in evaluate_text(part, names, file)]


def list_added_folders(tree: ast.AST, file: str) -> List[Tuple[str, bool]]:
    """List the folders that a file puts into `sys.path`, and whether each comes first; those that do not exist go.

    A folder that is no full path is one below the script's folder, or below the present one.
    """
    names: Dict[str, List[str]] = {}
    found: List[Tuple[str, bool]] = []
    for node in _list_in_order(tree):
        _read_assignment(node, names, file)
        for value, is_first in _iter_additions(node):
            found += [(text, is_first) for text in evaluate_text(value, names, file)]
    return [
        (name_from_here(folder), is_first)
        for text, is_first in found
        for folder in dict.fromkeys((os.path.join(os.path.dirname(os.path.abspath(file)), text), os.path.abspath(text)))
        if ANYTHING not in text and os.path.isdir(folder)
    ]


def _iter_additions(node: ast.AST) -> Iterator[Tuple[ast.AST, bool]]:
    """List the expressions that a statement adds to `sys.path`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        if name == "addsitedir" and node.args:
            yield node.args[0], False
        elif _is_path(node.func.value) and name in ("insert", "append", "extend") and node.args:
            given = node.args[-1]
            for added in given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]:
                yield added, name == "insert"
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(map(_is_path, targets)):
            is_first = isinstance(node, ast.Assign)
            for part in ast.walk(node.value):
                yield from ((element, is_first) for element in getattr(part, "elts", []))


def _is_path(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "path" and getattr(node.value, "id", "") == "sys"


def name_from_here(path: str) -> str:
    """Name a folder or a file from the present folder where it is below, as paths of findings are named."""
    path = os.path.normpath(path)
    here = os.getcwd()
    return "" if path == here else path[len(here) + 1 :] if path.startswith(here + os.sep) else path
