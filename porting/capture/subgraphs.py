"""Loops and branches in a graph: their bodies are graphs of their own, run again and again, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Sequence

import torch

__all__ = ["Body", "bodies_of", "run_cond", "run_for_loop"]


@dataclass(frozen=True, eq=False)
class Body:
    """The graph of one body: its placeholders are the inputs, then what it reads of the graph around it."""

    graph: torch.fx.Graph

    def __repr__(self) -> str:
        return f"Body({len(self.graph.nodes)} nodes)"


def bodies_of(node: torch.fx.Node) -> List[Body]:
    """List the bodies that `node` runs; only loops and branches have any."""
    arguments: Sequence[Any] = node.args
    return [argument for argument in arguments if isinstance(argument, Body)]


def run_for_loop(
    count: int, body: Callable[..., Sequence[Any]], inputs: Sequence[Any], captured: Sequence[Any]
) -> Sequence[Any]:
    """Run `body` `count` times, each time on what it returned before; `captured` are its other arguments."""
    values = inputs
    for _ in range(count):
        values = body(*values, *captured)
    return values


def run_cond(
    condition: torch.Tensor,
    then_body: Callable[..., Sequence[Any]],
    then_captured: Sequence[Any],
    else_body: Callable[..., Sequence[Any]],
    else_captured: Sequence[Any],
) -> Sequence[Any]:
    """Run one of two bodies, as the value of `condition` says."""
    if condition:
        return then_body(*then_captured)
    return else_body(*else_captured)
