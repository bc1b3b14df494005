"""Conditions around a fact: whether they say that no port runs there, or that one of several processes does it."""

from __future__ import annotations

import ast
import re
from typing import Iterator, Sequence, Tuple

__all__ = [
    "are_exclusive",
    "excludes_ports",
    "is_of_one_rank",
    "list_words",
    "mentions",
    "normalise_guard",
    "requires_port",
]

_RANK = re.compile(
    r"(^|_)(rank|master|main|primary|leader|chief|zero|gpu_?id|instance|index)($|_)"
    r"|is_main|is_master|instance_?index|rank",
    re.I,
)


def list_words(node: ast.AST) -> Iterator[str]:
    """List the names, attributes and strings in an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def mentions(guards: Sequence[ast.AST], pattern: str) -> bool:
    """Tell whether a pattern is found in the words of one of the conditions."""
    sought = re.compile(pattern, re.IGNORECASE)
    return any(sought.search(word) for guard in guards for word in list_words(guard))


def normalise_guard(guard: ast.expr) -> Tuple[str, bool]:
    """Write a condition in one form, and whether it has to hold or not.

    >>> normalise_guard(ast.parse("mode != 1", mode="eval").body)[1]
    False
    """
    holds = True
    while isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not):
        guard, holds = guard.operand, not holds
    if isinstance(guard, ast.Compare) and len(guard.ops) == 1:
        for negative, positive in ((ast.NotEq, ast.Eq), (ast.IsNot, ast.Is), (ast.NotIn, ast.In)):
            if isinstance(guard.ops[0], negative):
                guard = ast.Compare(guard.left, [positive()], guard.comparators)
                holds = not holds
                break
    return ast.dump(guard), holds


def are_exclusive(one: Sequence[ast.expr], other: Sequence[ast.expr]) -> bool:
    """Tell whether no run of the program comes to both."""
    known = dict(map(normalise_guard, one))
    return any(known.get(text, holds) != holds for text, holds in map(normalise_guard, other))


def _tells_ports(guard: ast.AST) -> bool:
    return mentions((guard,), r"(^|_)ipus?($|_)|poptorch|PortedModel")


def _list_parts(guard: ast.expr) -> Sequence[ast.expr]:
    return guard.values if isinstance(guard, ast.BoolOp) and isinstance(guard.op, ast.And) else [guard]


def excludes_ports(guards: Sequence[ast.expr]) -> bool:
    """Tell whether conditions hold only where no port is: `not args.use_ipu`, `mode != ComputeMode.IPU`."""
    parts = [part for guard in guards for part in _list_parts(guard)]
    return any(_tells_ports(part) and not normalise_guard(part)[1] for part in parts)


def requires_port(guards: Sequence[ast.expr]) -> bool:
    """Tell whether conditions choose the port among other ways to run the program.

    Whether hardware is there, which PopTorch itself tells, is no such choice.
    """
    return any(
        _tells_ports(guard) and normalise_guard(guard)[1] and not mentions((guard,), r"^poptorch$|ipuHardware")
        for guard in guards
    )


def is_of_one_rank(guards: Sequence[ast.expr]) -> bool:
    """Tell whether only one of several processes comes here.

    `not MPI_AVAILABLE or rank == 0` does not: without MPI every instance that `poprun` has started comes here.
    """
    return any(_chooses_rank(guard) for guard in guards)


def _chooses_rank(guard: ast.expr) -> bool:
    if isinstance(guard, ast.BoolOp) and isinstance(guard.op, ast.Or):
        others = [part for part in guard.values if not _chooses_rank(part)]
        return len(others) < len(guard.values) and not mentions(others, r"mpi|hvd|horovod")
    return any(_RANK.search(word) for word in list_words(guard))
