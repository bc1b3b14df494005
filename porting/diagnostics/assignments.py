"""Where a class assigns an attribute, for faults that are told by the attribute's name alone."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Iterator, Optional, Sequence

from porting.diagnostics.places import Place, is_user_file

__all__ = ["find_assignment"]


def find_assignment(kind: type, attribute: str) -> Optional[Place]:
    """Find the first line of the user's, outside of `__init__`, where a method of `kind` binds `attribute`.

    Base classes are searched, too. Returns None where the source does not tell.

    >>> class Counter:
    ...     def forward(self):
    ...         self.count = 1
    >>> find_assignment(Counter, "total") is None
    True
    """
    return next((place for cls in kind.__mro__ for place in _assignments_in(cls, attribute)), None)


def _assignments_in(kind: type, attribute: str) -> Iterator[Place]:
    try:
        file = inspect.getsourcefile(kind)
        lines, first = inspect.getsourcelines(kind)
    except (OSError, TypeError):  # typed in, or written in C
        return
    if file is None or not is_user_file(file):
        return
    for method in ast.walk(_parsed(lines)):
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load) and node.attr == attribute:
                    yield Place(file, first + node.lineno - 1)


def _parsed(lines: Sequence[str]) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:  # the file has changed since it was loaded
        return ast.Module([], [])
