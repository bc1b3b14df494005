"""Walk loops, and once more where a round reads what the round before has left.

What a loop goes through tells its kind, for rules.
"""

from __future__ import annotations

import ast
import re
from typing import Callable, Iterator, List, Sequence, Union

from porting.source.facts import Kind, Loop, LoopKind, ProgramObjects
from porting.source.files import list_nodes
from porting.source.walk.assignment import assign
from porting.source.walk.branches import run_part
from porting.source.walk.host_reads import ask_truth
from porting.source.walk.iteration import find_element, list_sources
from porting.source.walk.store import Writes
from porting.source.walk.values import Value, list_program_objects
from porting.source.walk.walk import Flow, Walk

__all__ = ["execute_for", "execute_while", "leave_loop", "list_loops_over_batches"]

_OF_MODELS = (Kind.MODULE, Kind.PARAMETERS, Kind.OPTIMIZER, Kind.STATE)
_BATCHES = (Kind.LOADER, Kind.PORT_LOADER, Kind.DATASET, Kind.BATCH)


def execute_for(walk: Walk, node: Union[ast.For, ast.AsyncFor]) -> None:
    """Walk a `for` loop."""
    value = walk.evaluate(node.iter)
    objects = list_sources(value)
    loop = _make_loop(walk, node, objects, _find_kind(node, objects))

    def run_round() -> None:
        assign(walk, node.target, find_element(walk, value, node.iter), node.iter)
        walk.run(node.body)

    _run_rounds(walk, loop, run_round, may_be_skipped=True)
    walk.run(node.orelse)


def execute_while(walk: Walk, node: ast.While) -> None:
    """Walk a `while` loop."""
    loop = _make_loop(walk, node, (), _find_kind(node, ()))
    is_endless = isinstance(node.test, ast.Constant)

    def run_round() -> None:
        objects = list_program_objects(ask_truth(walk, node.test))
        walk.record_statement(node, objects, shown=node.test)
        walk.run(node.body)

    _run_rounds(walk, loop, run_round, may_be_skipped=not is_endless)
    walk.run(node.orelse)


def list_loops_over_batches(walk: Walk, node: ast.expr, value: Value) -> List[Loop]:
    """List the loop that a comprehension is, if it goes through batches."""
    objects = list_sources(value)
    is_over_batches = any(one.kind in _BATCHES for one in objects)
    return [_make_loop(walk, node, objects, LoopKind.BATCHES)] if is_over_batches else []


def leave_loop(walk: Walk, node: ast.stmt) -> None:
    """Walk a `break` or `continue`."""
    walk.flow = Flow.LOOP


def _make_loop(walk: Walk, node: ast.AST, objects: ProgramObjects, kind: LoopKind) -> Loop:
    loop = walk.loop_facts.get(node)
    if loop is None:
        loop = walk.loop_facts[node] = Loop(node, kind, objects)
    else:
        walk.collector.extend_loop(loop, kind, objects)
    return loop


def _run_rounds(walk: Walk, loop: Loop, run_round: Callable[[], None], *, may_be_skipped: bool) -> None:
    ends: List[Writes] = []
    flow = Flow.ON
    with walk.standing(loops=(*walk.loops, loop), guards=walk.guards):
        for _ in range(2):
            walk.loop_exits.append([])
            walk.store.begin_loop()
            writes, flow = run_part(walk, run_round)
            exits = walk.loop_exits.pop()
            if flow == Flow.FUNCTION:
                walk.frame.exits.append(writes)
            elif flow != Flow.RAISED:
                exits.append(writes)
            ends.extend(exits)
            if not walk.store.end_loop(_join_writes(exits)):
                break
            walk.store.merge([{}, *exits])
    if may_be_skipped or not ends:
        ends.append({})
    walk.store.merge(ends)
    # a loop that returns may also have nothing to go through
    walk.flow = Flow.ON


def _join_writes(ends: List[Writes]) -> Writes:
    joined: Writes = {}
    for writes in ends:
        joined.update(writes)
    return joined


_EPOCH = re.compile(r"epochs?|ep|(\w+_)?epochs?(_\w+)?", re.IGNORECASE)
_STEP = re.compile(r"(\w+_)?(iter|step|batch|it|itr|iteration)(e?s)?(_\w+|id|idx)?", re.IGNORECASE)


def _find_kind(node: Union[ast.For, ast.AsyncFor, ast.While], objects: ProgramObjects) -> LoopKind:
    if any(one.kind in _BATCHES for one in objects):
        return LoopKind.BATCHES
    if objects and all(one.kind in _OF_MODELS for one in objects):
        return LoopKind.OTHER
    names = list(_iter_names(node))
    if any(_EPOCH.fullmatch(name) for name in names):
        return LoopKind.EPOCHS
    if any(_steps_in(statement) for statement in _go_through_own(node.body)):
        return LoopKind.BATCHES
    return LoopKind.BATCHES if any(_STEP.fullmatch(name) for name in names) else LoopKind.OTHER


def _iter_names(node: Union[ast.For, ast.AsyncFor, ast.While]) -> Iterator[str]:
    heads = [node.test] if isinstance(node, ast.While) else [node.target, node.iter]
    for head in heads:
        for part in list_nodes(head):
            if isinstance(part, ast.Name):
                yield part.id
            elif isinstance(part, ast.Attribute):
                yield part.attr


def _go_through_own(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Go through what stands in a loop, but not in a loop within it."""
    waiting: List[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(node))


def _steps_in(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in ("backward", "zero_grad")
