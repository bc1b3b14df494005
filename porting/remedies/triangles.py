"""Compute triangles and diagonals of matrices, by comparing positions and by slices.

The operator table has it for `torch.tril`, `torch.triu`, `torch.diagonal` and others.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from porting.remedies.entries import OperatorSubstitute

__all__ = ["SUBSTITUTES", "embed_diagonal", "keep_triangle", "read_diagonal"]


def keep_triangle(x: torch.Tensor, diagonal: int = 0, *, is_lower: bool) -> torch.Tensor:
    """Set what is above (or below) a diagonal of (..., R, C) to zero."""
    distances = _distances(x, x.shape[-2], x.shape[-1])
    kept = distances <= diagonal if is_lower else distances >= diagonal
    return torch.where(kept, x, torch.zeros_like(x, device=x.device))


def read_diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """Read a diagonal of the matrices in `dim1` and `dim2`; it becomes the last dimension."""
    dims = [dim for dim in range(x.dim()) if dim not in (dim1 % x.dim(), dim2 % x.dim())]
    matrices = x.permute(*dims, dim1 % x.dim(), dim2 % x.dim())
    num_rows, num_columns = matrices.shape[-2:]
    length = max(0, min(num_rows + min(offset, 0), num_columns - max(offset, 0)))
    start = offset if offset >= 0 else -offset * num_columns
    stop = start + max(0, length - 1) * (num_columns + 1) + (length > 0)
    return matrices.flatten(-2)[..., start : stop : num_columns + 1]


def embed_diagonal(x: torch.Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> torch.Tensor:
    """Put (..., N) on a diagonal of matrices of zeros, whose dimensions are `dim1` and `dim2`."""
    size = x.shape[-1] + abs(offset)
    zeros = torch.zeros([*x.shape[:-1], abs(offset)], dtype=x.dtype, device=x.device)
    # each value in the row (column) that it comes to lie in
    rows = torch.cat([x, zeros], -1) if offset else x
    spread = rows.unsqueeze(-1 if offset >= 0 else -2).expand(*x.shape[:-1], size, size)
    matrices = torch.where(_distances(x, size, size) == offset, spread, torch.zeros_like(spread, device=x.device))
    return torch.movedim(matrices, (-2, -1), (dim1, dim2))


def _distances(x: torch.Tensor, num_rows: int, num_columns: int) -> torch.Tensor:
    """Say for each position of a matrix how far it is to the right of the main diagonal."""
    rows = torch.arange(num_rows, device=x.device).unsqueeze(1)
    return torch.arange(num_columns, device=x.device).unsqueeze(0) - rows


_COMPUTED: Any = {
    "tril": partial(keep_triangle, is_lower=True),
    "triu": partial(keep_triangle, is_lower=False),
    "diagonal": read_diagonal,
    "diag": lambda x, diagonal=0: (embed_diagonal if x.dim() == 1 else read_diagonal)(x, diagonal),
    "diag_embed": embed_diagonal,
    "trace": lambda x: read_diagonal(x).sum(),
}

SUBSTITUTES = tuple(
    OperatorSubstitute(f"torch.{name}", target, compute)
    for name, compute in _COMPUTED.items()
    for target in (getattr(torch, name), getattr(torch.Tensor, name))
)
