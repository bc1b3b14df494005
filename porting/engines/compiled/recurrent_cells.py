"""Counting the cells of LSTMs, which compiled programs write out one by one."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["MOST_CELLS", "count_cells"]

MOST_CELLS = 80
"""How many cells a program writes out at most; one is about 50 operators with its backward pass."""


def count_cells(graph: torch.fx.Graph) -> int:
    """Return how many cells the LSTMs of a captured step consist of: over time, layers and directions."""
    return sum(map(_count_cells, graph.nodes))


def _count_cells(node: torch.fx.Node) -> int:
    if node.target is not torch.ops.aten.lstm.input:
        return 0
    x: Any = node.args[0]
    num_layers, is_bidirectional, is_batch_first = (node.args[index] for index in (4, 7, 8))
    length = x.meta["val"].shape[1 if is_batch_first else 0]
    return int(length * num_layers * (2 if is_bidirectional else 1))
