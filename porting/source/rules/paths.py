"""Follow the paths through a function to the names that have a value on each.

Conditions that contradict each other are on no path; the rules of executors ask it.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import Counter as CounterOf
from typing import Dict, FrozenSet, Iterator, List, Set, Tuple

from porting.source.files import list_nodes, list_statements
from porting.source.rules.guards import mentions, normalise_guard

__all__ = ["collect_attributes_of_training", "iter_unbound_uses"]

_MOST_PATHS = 256
_IPU = r"(^|_)ipus?($|_)"

# what is known to hold, and which names are set
_State = Tuple[FrozenSet[Tuple[str, bool]], FrozenSet[str]]


def iter_unbound_uses(function: ast.FunctionDef) -> Iterator[ast.Name]:
    """Yield names that a path uses under a port's condition before any statement of the path has set them.

    Only names count that the function sets somewhere under a condition. Loops and handlers are passed over.
    """
    given = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    local = _collect_set(function.body) - given
    found: Dict[str, ast.Name] = {}
    _follow(function.body, [(frozenset(), frozenset())], local, found)
    yield from found.values()


def _collect_set(body: List[ast.stmt]) -> Set[str]:
    return {
        part.id
        for statement in body
        for part in list_nodes(statement)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }


def _follow(
    body: List[ast.stmt], states: List[_State], local: Set[str], found: Dict[str, ast.Name], in_port: bool = False
) -> List[_State]:
    """Follow a block from each of the states; return those in which it ends, none where it leaves."""
    for statement in body:
        if not states or len(states) > _MOST_PATHS:
            return []
        if isinstance(statement, ast.If):
            states = _follow_if(statement, states, local, found, in_port)
            continue
        if in_port and isinstance(statement, (ast.Return, ast.Expr, ast.Assign)):
            _note_uses(statement, states, local, found)
        if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return []
        if isinstance(statement, ast.With):
            states = _follow(statement.body, states, local, found, in_port)
            continue
        names = frozenset(_collect_set([statement]))
        states = [(facts, known | names) for facts, known in states]
    return states


def _follow_if(
    node: ast.If, states: List[_State], local: Set[str], found: Dict[str, ast.Name], in_port: bool
) -> List[_State]:
    text, holds = normalise_guard(node.test)
    tells = mentions((node.test,), _IPU)
    ends: List[_State] = []
    for body, value in ((node.body, holds), (node.orelse, not holds)):
        entering = [(facts | {(text, value)}, known) for facts, known in states if (text, not value) not in facts]
        is_port = in_port or tells and body is node.body and holds and not isinstance(node.test, ast.BoolOp)
        # a condition of several parts holds as a whole, and its parts with it
        parts = _list_parts(node.test) if body is node.body else []
        entering = [state for state in entering if all((part, not sign) not in state[0] for part, sign in parts)]
        ends.extend(_follow(body, entering, local, found, is_port))
    return ends


def _list_parts(test: ast.expr) -> List[Tuple[str, bool]]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return [normalise_guard(part) for part in test.values]
    return []


def _note_uses(statement: ast.stmt, states: List[_State], local: Set[str], found: Dict[str, ast.Name]) -> None:
    for part in list_nodes(statement):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id in local:
            if any(part.id not in known for _, known in states):
                found.setdefault(part.id, part)


def collect_attributes_of_training(tree: ast.AST) -> Set[str]:
    """Collect the attributes of `self` that are set under a condition that speaks of training, and nowhere else."""
    everywhere = Counter(_iter_own(tree))
    inside: CounterOf[str] = Counter()
    for node in list_statements(tree):
        if isinstance(node, ast.If) and mentions((node.test,), r"(^|_)train(ing)?($|_)"):
            inside.update(name for statement in node.body for name in _iter_own(statement))
    return {name for name, number in inside.items() if everywhere[name] == number}


def _iter_own(tree: ast.AST) -> Iterator[str]:
    """List the attributes of `self` that are assigned to, once for each time."""
    for node in list_statements(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                yield target.attr
