"""Tell whether the conditions around a fact say that no port runs there, or only one of several processes.

Most rules ask it before they speak.
"""

from __future__ import annotations

import ast
import functools
import re
from typing import Iterator, Sequence, Tuple

from porting.source.files import list_nodes

__all__ = [
    "are_exclusive",
    "asks_for_cuda",
    "excludes_ports",
    "is_of_one_rank",
    "iter_words",
    "mentions",
    "normalise_guard",
    "requires_port",
    "split_guards",
]

_RANK = re.compile(
    r"(^|_)(rank|master|main|primary|leader|chief|zero|gpu_?id|instance|index|process)($|_)"
    r"|is_main|is_master|instance_?index|rank|execute_on_instances",
    re.I,
)


def iter_words(node: ast.AST) -> Iterator[str]:
    """List the names, attributes and strings in an expression."""
    for part in list_nodes(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def mentions(guards: Sequence[ast.AST], pattern: str) -> bool:
    """Tell whether a pattern is found in the words of one of the conditions."""
    sought = re.compile(pattern, re.IGNORECASE)
    return any(sought.search(word) for guard in guards for word in iter_words(guard))


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


def split_guards(guards: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """List the single conditions that hold where conditions do: the parts of an `and`, and of an `or` that does not.

    >>> [type(part).__name__ for part in split_guards([ast.parse("not (a or not b)", mode="eval").body])]
    ['UnaryOp', 'Name']
    """
    for guard in guards:
        inner, is_negated = guard, False
        while isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Not):
            inner, is_negated = inner.operand, not is_negated
        if isinstance(inner, ast.BoolOp) and isinstance(inner.op, ast.Or if is_negated else ast.And):
            yield from split_guards([ast.UnaryOp(ast.Not(), part) if is_negated else part for part in inner.values])
        else:
            yield ast.UnaryOp(ast.Not(), inner) if is_negated else inner


def are_exclusive(one: Sequence[ast.expr], other: Sequence[ast.expr]) -> bool:
    """Tell whether no run of the program comes to both: a condition differs, or the value that two of them choose.

    >>> ipu, gpu, cpu = (ast.parse(f"mode {text}", mode="eval").body for text in ("== M.IPU", "== M.GPU", "!= M.IPU"))
    >>> are_exclusive([ipu], [gpu]), are_exclusive([ipu], [cpu]), are_exclusive([gpu], [cpu])
    (True, True, False)
    """
    parts, others = list(split_guards(one)), list(split_guards(other))
    known = dict(map(normalise_guard, parts))
    if any(known.get(text, holds) != holds for text, holds in map(normalise_guard, others)):
        return True
    chosen = dict(_iter_choices(parts))
    return any(chosen.get(asked, value) != value for asked, value in _iter_choices(others))


def _iter_choices(guards: Sequence[ast.expr]) -> Iterator[Tuple[Tuple[str, str], str]]:
    """List what conditions compare with a member of what, or with a text or number, and with which one."""
    for guard in guards:
        if isinstance(guard, ast.Compare) and len(guard.ops) == 1 and isinstance(guard.ops[0], ast.Eq):
            value = guard.comparators[0]
            if isinstance(value, ast.Constant):
                yield (ast.dump(guard.left), ""), repr(value.value)
            elif isinstance(value, ast.Attribute):
                yield (ast.dump(guard.left), ast.dump(value.value)), value.attr


def _tells_ports(guard: ast.AST) -> bool:
    return mentions((guard,), r"(^|_)ipus?($|_)|poptorch|PortedModel")


def _list_parts(guard: ast.expr) -> Sequence[ast.expr]:
    return guard.values if isinstance(guard, ast.BoolOp) and isinstance(guard.op, ast.And) else [guard]


def excludes_ports(guards: Sequence[ast.expr]) -> bool:
    """Tell whether conditions hold only where no port is: `not args.use_ipu`, `mode != ComputeMode.IPU`, `cpu_mode`."""
    return any(
        mentions((guard,), _CPU) if normalise_guard(guard)[1] else _tells_ports(guard) for guard in split_guards(guards)
    )


_CPU = r"^((is|use|on|run_on|only)_)*cpu(_(mode|only))?$"


def requires_port(guards: Sequence[ast.expr]) -> bool:
    """Tell whether conditions choose the port among other ways to run the program.

    Whether hardware is there, which PopTorch itself tells, is no such choice.
    """
    return any(
        _tells_ports(guard) and normalise_guard(guard)[1] and not mentions((guard,), r"^poptorch$|ipuHardware")
        for guard in split_guards(guards)
    )


def is_of_one_rank(guards: Sequence[ast.expr]) -> bool:
    """Tell whether only one of several processes comes here.

    `not MPI_AVAILABLE or rank == 0` does not: without MPI every instance that `poprun` has started comes here.
    """
    return any(map(_chooses_rank, split_guards(guards)))


_SEVERAL = r"popdist|distributed|world_?size|multi_?(instance|process)"


def _chooses_rank(guard: ast.expr) -> bool:
    if not normalise_guard(guard)[1] and not isinstance(guard, ast.Compare) and mentions((guard,), _SEVERAL):
        # where there are not several processes
        return True
    if isinstance(guard, ast.BoolOp) and isinstance(guard.op, ast.Or):
        others = [part for part in guard.values if not _chooses_rank(part)]
        return len(others) < len(guard.values) and not mentions(others, r"mpi|hvd|horovod")
    return any(_RANK.search(word) for word in iter_words(guard))


_FOR_CUDA = r"cuda|gpu|device|distributed|ddp|nccl|apex|amp|parallel|rank"
_CONTRARY = r"no_?cuda|cpu"


def asks_for_cuda(guards: Sequence[ast.expr]) -> bool:
    """Tell whether conditions hold only where there is CUDA, or may be there."""
    return any(map(_is_for_cuda, split_guards(guards)))


@functools.lru_cache(maxsize=4096)
def _is_for_cuda(guard: ast.expr) -> bool:
    if not normalise_guard(guard)[1]:
        return mentions((guard,), _CONTRARY) or _excludes_none(guard) and mentions((guard,), _FOR_CUDA)
    return mentions((guard,), _FOR_CUDA)


def _excludes_none(guard: ast.expr) -> bool:
    """Tell whether a condition, which says no, is that a number of a device or process is there: `local_rank != -1`."""
    while isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not):
        guard = guard.operand
    if not isinstance(guard, ast.Compare) or len(guard.ops) != 1:
        return False
    none = guard.comparators[0]
    is_negative = isinstance(none, ast.UnaryOp) and isinstance(none.op, ast.USub)
    return is_negative or isinstance(none, ast.Constant) and none.value is None
