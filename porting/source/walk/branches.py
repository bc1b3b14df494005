"""Walk each branch from the same start, and join what they have left.

Afterwards a variable may be what any of them left in it.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

from porting.source.walk.store import Writes
from porting.source.walk.walk import Flow, Walk

__all__ = ["merge_ends", "run_branches", "run_part"]


def run_part(walk: Walk, part: Callable[[], object]) -> Tuple[Writes, str]:
    """Walk a part and take back what it wrote; return that, and how the part ended."""
    walk.flow = Flow.ON
    walk.store.begin_branch()
    part()
    flow, walk.flow = walk.flow, Flow.ON
    return walk.store.end_branch(), flow


def run_branches(walk: Walk, branches: Sequence[Callable[[], object]], truth: Optional[bool] = None) -> List[str]:
    """Walk the branches of which one is taken, and go on as after any of those that do not leave; return their ends.

    Where the `truth` of the test of two branches is known, the other one is walked for what happens in it, but leaves
    nothing.
    """
    ends: List[Tuple[Writes, str]] = []
    for number, branch in enumerate(branches):
        returned = list(walk.frame.returned)
        end = run_part(walk, branch)
        if truth is not None and number == int(truth):
            walk.frame.returned[:] = returned
            end = ({}, Flow.RAISED)
        ends.append(end)
    merge_ends(walk, ends)
    return [flow for _writes, flow in ends]


def merge_ends(walk: Walk, ends: List[Tuple[Writes, str]]) -> None:
    """Go on as after any of the branches that do not leave; the others' writes wait for where they lead."""
    for writes, flow in ends:
        if flow == Flow.FUNCTION:
            walk.frame.exits.append(writes)
        elif flow == Flow.LOOP and walk.loop_exits:
            walk.loop_exits[-1].append(writes)
    going_on = [writes for writes, flow in ends if flow == Flow.ON]
    if going_on:
        walk.store.merge(going_on)
        return
    flows = [flow for _writes, flow in ends]
    walk.flow = next((flow for flow in (Flow.LOOP, Flow.FUNCTION) if flow in flows), Flow.RAISED)
