"""Programs for a compiler: flat graphs of ATen operators over the tensors of a device, and their use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, List, Mapping, Sequence, Tuple

import torch

from .call_layout import CallLayout, TensorSpec

__all__ = ["Program", "Programs", "Runner", "num_operators"]

# Runs a compiled program: it gets the tensors that `Program.arguments` describes and returns its results.
Runner = Callable[[Sequence[torch.Tensor]], List[torch.Tensor]]


def num_operators(graph: torch.fx.Graph) -> int:
    """Return how many operators `graph` has; views count too, the unpacking of tuples does not."""
    return sum(isinstance(node.target, torch._ops.OpOverload) for node in graph.nodes)


@dataclass(frozen=True)
class Program:
    """One program: a graph of ATen operators that returns a tuple of `num_results` tensors.

    `arguments` describe what it gets, `written` are the indices of those that it writes to in place. `has_halves` says
    that it computes in half precision and must round where the graph does.
    """

    role: str
    module: torch.fx.GraphModule
    arguments: Tuple[TensorSpec, ...]
    written: Tuple[int, ...]
    num_results: int
    has_halves: bool = False

    @property
    def num_operators(self) -> int:
        """How many operators the program has."""
        return num_operators(self.module.graph)


@dataclass(frozen=True)
class Programs:
    """The programs of one step by their roles ("step", or "accumulate" and "update", or "forward"), and their use."""

    by_role: Mapping[str, Program]
    layout: CallLayout
