"""Put statements of a block under a test, as few `if`s as they need; what stands between them stays as it is."""

from __future__ import annotations

import ast
from typing import Dict, List, Optional, Sequence

from porting.convert.editing import FileEdits

__all__ = ["guard_statements"]

_NAMES = ("body", "orelse", "finalbody")


def guard_statements(
    edits: FileEdits, block: Sequence[ast.stmt], marked: Dict[ast.stmt, str], test: str, why: str
) -> None:
    """Guard the marked statements in a block and below it; what is done instead is the text of each.

    A statement whose branches are all marked is guarded whole, and so is a block of `autocast`.
    """
    run: List[ast.stmt] = []
    for statement in [*block, None]:
        if statement is not None and _collect(statement, marked) is not None:
            run.append(statement)
            continue
        if run:
            texts = [text for one in run for text in _collect(one, marked) or () if text]
            instead = "\n".join(dict.fromkeys(texts))
            edits.guard(run[0], run[-1], test, instead, "step", why)
            run = []
        if statement is not None and not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            for name in _NAMES:
                inner = getattr(statement, name, None)
                if isinstance(inner, list):
                    guard_statements(edits, inner, marked, test, why)
            for handler in getattr(statement, "handlers", ()):
                guard_statements(edits, handler.body, marked, test, why)


def _collect(statement: ast.stmt, marked: Dict[ast.stmt, str]) -> Optional[List[str]]:
    """Collect what is done instead of a statement; None for one that is not marked as a whole."""
    if statement in marked:
        return [marked[statement]]
    is_autocast = isinstance(statement, ast.With) and "autocast" in ast.unparse(statement.items[0].context_expr)
    if not (is_autocast or isinstance(statement, ast.If)):
        return None
    inner = [
        _collect(one, marked)
        for name in _NAMES
        for one in getattr(statement, name, ())
        if not isinstance(one, ast.Pass)
    ]
    if not inner or any(one is None for one in inner):
        return None
    return [text for one in inner for text in one or ()]
