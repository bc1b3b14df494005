"""Put statements of a block under a test, as few `if`s as they need; what stands between them stays as it is."""

from __future__ import annotations

import ast
from typing import Dict, List, Optional, Sequence

from porting.convert.editing import FileEdits
from porting.convert.trees import iter_blocks, write_node

__all__ = ["guard_statements"]


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
            for inner in [*iter_blocks(statement), *(one.body for one in getattr(statement, "handlers", ()))]:
                guard_statements(edits, inner, marked, test, why)


def _collect(statement: ast.stmt, marked: Dict[ast.stmt, str]) -> Optional[List[str]]:
    """Collect what is done instead of a statement; None for one that is not marked as a whole."""
    if statement in marked:
        return [marked[statement]]
    is_autocast = isinstance(statement, ast.With) and "autocast" in write_node(statement.items[0].context_expr)
    if not (is_autocast or isinstance(statement, ast.If)):
        return None
    below = [one for block in iter_blocks(statement) for one in block if not isinstance(one, ast.Pass)]
    inner = [_collect(one, marked) for one in below]
    if not inner or any(one is None for one in inner):
        return None
    return [text for one in inner for text in one or ()]
