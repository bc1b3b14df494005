"""Imports of a file as they stand in its text: what each names, and whether the program goes on without it."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Tuple

from porting.source.files import Unit, list_blocks, list_nodes
from porting.source.text_values import ANYTHING, evaluate_text, read_names

__all__ = ["ImportedName", "is_main_guard", "iter_imports"]


@dataclass(frozen=True)
class ImportedName:
    """A module that an import names, and the names that are taken from it, which may be modules as well.

    An import is optional where the program says what happens without it: in a `try` that catches ImportError, or
    under a test of the version or of the type checker. One that is computed may name several, by a pattern or a table.
    """

    node: ast.AST
    name: str
    level: int = 0
    parts: Tuple[str, ...] = ()
    is_optional: bool = False
    is_computed: bool = False


def iter_imports(unit: Unit, *, is_main: bool) -> Iterator[ImportedName]:
    """List the imports of a file, wherever they stand; those under its main guard only where it is the program."""
    names: Dict[str, List[str]] = {}
    has_computed = "import_module" in unit.text or "__import__" in unit.text
    if has_computed:
        names = read_names(unit.tree, unit.file)
    for node, is_optional in _go_through(unit, is_main=is_main, has_computed=has_computed):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield ImportedName(node, alias.name, is_optional=is_optional)
        elif isinstance(node, ast.ImportFrom):
            parts = tuple(alias.name for alias in node.names if alias.name != "*")
            yield ImportedName(node, node.module or "", node.level, parts, is_optional)
        elif isinstance(node, ast.Call) and has_computed:
            yield from _iter_computed(node, names, unit, is_optional=is_optional)
        elif isinstance(node, ast.Dict) and has_computed:
            for text in (value.value for value in node.values if isinstance(value, ast.Constant)):
                if isinstance(text, str) and _TABLED.fullmatch(text):
                    module, _, part = text.partition(":")
                    yield ImportedName(node, module, 0, (part,) if part else (), not part, True)


_TABLED = re.compile(r"[^\W\d]\w*(\.\w+)*(:\w+(\.\w+)*)?")


def _iter_computed(
    node: ast.Call, names: Dict[str, List[str]], unit: Unit, *, is_optional: bool
) -> Iterator[ImportedName]:
    called = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if called not in ("import_module", "__import__") or not node.args:
        return
    for text in evaluate_text(node.args[0], names, unit.file):
        name = text.lstrip(".")
        yield ImportedName(node, name, len(text) - len(name), (), is_optional or ANYTHING in name, True)


def _go_through(unit: Unit, *, is_main: bool, has_computed: bool) -> Iterator[Tuple[ast.AST, bool]]:
    """Go through the nodes in the order of the source, with whether the program goes on where an import fails there."""
    waiting: List[Tuple[ast.AST, bool]] = [(unit.tree, False)]
    while waiting:
        node, is_optional = waiting.pop()
        yield node, is_optional
        # calls stand in expressions, imports in statements alone
        children = list(ast.iter_child_nodes(node)) if has_computed else list_blocks(node)
        if children:
            waiting += reversed(list(_mark_optional(node, children, is_main=is_main, is_optional=is_optional)))


def _mark_optional(
    node: ast.AST, children: Iterable[ast.AST], *, is_main: bool, is_optional: bool
) -> Iterator[Tuple[ast.AST, bool]]:
    if isinstance(node, ast.If) and is_main_guard(node.test):
        children = node.body if is_main else node.orelse
    elif isinstance(node, ast.If):
        is_optional = is_optional or bool(_CONDITIONS & set(_list_words(node.test)))
    elif isinstance(node, ast.Try) and any(map(_catches_import, node.handlers)):
        yield from ((part, True) for part in node.body)
        children = [*node.handlers, *node.orelse, *node.finalbody]
    yield from ((child, is_optional) for child in children)


_CONDITIONS = {"version_info", "TYPE_CHECKING", "PY2", "PY3"}
_CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def _catches_import(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or bool(_CAUGHT & set(_list_words(handler.type)))


def _list_words(node: ast.AST) -> List[str]:
    return [getattr(part, "attr", getattr(part, "id", "")) for part in list_nodes(node)]


def is_main_guard(test: ast.expr) -> bool:
    """Tell whether a test asks whether the file is the program.

    >>> is_main_guard(ast.parse("__name__ == '__main__'", mode="eval").body)
    True
    """
    parts = (test.left, *test.comparators) if isinstance(test, ast.Compare) else ()
    return any(getattr(part, "id", "") == "__name__" for part in parts)
