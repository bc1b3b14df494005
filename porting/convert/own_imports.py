"""Add the imports of a port to a file so that they can be told from the user's, and be taken out again.

Modules come before the first import of the file, guarded imports behind the last one at its top.
"""

from __future__ import annotations

import textwrap
from itertools import takewhile
from typing import Any, Iterable, List

import libcst as cst
from libcst import matchers as m

from porting.source.patches.edits import REMOVED

__all__ = ["OWN_IMPORT", "OWN_MODULES", "add_imports", "list_first_imports"]

OWN_MODULES = ("argparse", "functools", "os", "sys")
"""What a port imports beside this package."""
OWN_IMPORT = "# of the port"
"""The comment of an import that a file has for itself, too."""
_LINE = cst.SimpleStatementLine


def add_imports(module: cst.Module, codes: Iterable[str], original: cst.Module) -> cst.Module:
    """Add what is imported: modules before the first import of the file, all else behind the last one at its top."""
    parts = [cst.parse_module(textwrap.dedent(code).strip("\n"), module.config_for_parsing).body for code in codes]
    others = [new for body in parts for new in body if isinstance(new, cst.Try)]
    body = list(module.body)
    begin = next((n for n, one in enumerate(body) if not _is_header(one, n)), len(body))
    end = begin
    for number, statement in enumerate(body):
        if _is_preamble(statement, number):
            end = max(end, number + 1)
        elif not isinstance(statement, (cst.Try, cst.If)):
            break
    given = [new for statements in parts for new in statements if not isinstance(new, cst.Try)]
    known = {module.code_for_node(one).strip() for line in body[:end] if isinstance(line, _LINE) for one in line.body}
    text = module.code_for_node
    first = list_first_imports(original)
    again = [new for new in given if text(new).strip() in first and not _uses(original, new)]
    modules = [_mark(original, new) for new in given if text(new).strip() not in known or new in again]
    if modules and begin < end:
        modules[0] = modules[0].with_changes(leading_lines=body[begin].leading_lines)
        body[begin] = body[begin].with_changes(leading_lines=[])
    if others:
        others[0] = others[0].with_changes(leading_lines=[cst.EmptyLine()])
    return module.with_changes(body=[*body[:begin], *modules, *body[begin:end], *others, *body[end:]])


def _uses(module: cst.Module, new: Any) -> bool:
    """Tell whether a file uses by itself what is imported."""
    name = new.body[0].names[0].evaluated_name
    return len(m.findall(module, m.Name(name))) > len(m.findall(module, m.ImportAlias(m.Name(name))))


def _mark(original: cst.Module, new: Any) -> Any:
    """Mark an import that the file has in another place, too, so that it can be told from the user's."""
    same = m.findall(original, m.ImportAlias(m.Name(new.body[0].names[0].evaluated_name)))
    comment = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(OWN_IMPORT))
    return new.with_changes(trailing_whitespace=comment) if same else new


def list_first_imports(module: cst.Module) -> List[str]:
    """List the imports that a file begins with and that a port may have added there."""
    body = [one for number, one in enumerate(module.body) if not _is_header(one, number)]
    lines = (module.code_for_node(one.body[0]) if isinstance(one, _LINE) else "" for one in body)
    return list(takewhile(lambda line: line in [f"import {name}" for name in OWN_MODULES], lines))


def _is_header(statement: cst.CSTNode, number: int) -> bool:
    """Tell whether a statement has to stay the first: the docstring of a file, and `from __future__` imports."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    is_future = isinstance(first, cst.ImportFrom) and getattr(first.module, "value", "") == "__future__"
    is_text = isinstance(first, cst.Expr) and isinstance(first.value, (cst.SimpleString, cst.ConcatenatedString))
    return is_future or is_text and number == 0


def _is_preamble(statement: cst.CSTNode, number: int) -> bool:
    """Tell whether a statement is an import, or the docstring of the file."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return isinstance(statement, cst.Try) and _only_imports(statement)
    if statement.body[0] is REMOVED:
        return True
    if number == 0 and isinstance(statement.body[0], cst.Expr):
        return isinstance(statement.body[0].value, (cst.SimpleString, cst.ConcatenatedString))
    return all(isinstance(one, (cst.Import, cst.ImportFrom)) for one in statement.body)


def _only_imports(statement: cst.Try) -> bool:
    body = statement.body.body
    return bool(body) and all(
        isinstance(line, cst.SimpleStatementLine)
        and all(isinstance(one, (cst.Import, cst.ImportFrom)) for one in line.body)
        for line in body
    )
