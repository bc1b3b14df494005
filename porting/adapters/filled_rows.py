"""Fill a small batch up to the rows that an executable has, and cut what it returns: for predictions alone.

Rows are filled with copies of the last one, which in eval mode change nothing of the others.
"""

from __future__ import annotations

from typing import Any

import torch

from porting.structure import Structure, flatten_tensors, map_tensors

__all__ = ["count_rows", "cut_rows", "fill_rows"]


def count_rows(batch: Structure) -> int:
    """Count the rows that all tensors of a batch have; 0 where they differ, or there is none.

    >>> count_rows([torch.zeros(4, 2), torch.zeros(4)]), count_rows([torch.zeros(4), torch.zeros(3)])
    (4, 0)
    """
    rows = {len(tensor) for tensor in flatten_tensors(batch) if tensor.dim()}
    return rows.pop() if len(rows) == 1 else 0


def fill_rows(batch: Structure, num_rows: int) -> Any:
    """Repeat the last row of a batch until it has `num_rows`; one with as many, more or no rows stays as it is.

    >>> fill_rows([torch.tensor([1, 2])], 4)
    [tensor([1, 2, 2, 2])]
    """
    present = count_rows(batch)
    missing = num_rows - present
    if not present or missing <= 0:
        return batch
    return map_tensors(lambda tensor: _repeat_last(tensor, missing), batch)


def cut_rows(returned: Structure, num_rows: int) -> Any:
    """Keep the first `num_rows` of all tensors that have rows."""
    return map_tensors(lambda tensor: tensor[:num_rows] if tensor.dim() else tensor, returned)


def _repeat_last(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return torch.cat([tensor, tensor[-1:].expand(count, *tensor.shape[1:])]) if tensor.dim() else tensor
