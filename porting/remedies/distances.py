"""Compute distances of rows, and norms of narrow matrices in closed form: a device has no singular values.

The operator table has it for `F.pdist`, `torch.norm` and the norms of `torch.linalg`.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "measure_matrices", "measure_pairs"]

# Orders that are functions of the singular values.
_SINGULAR = (2, -2, "nuc")


def measure_pairs(x: torch.Tensor, p: float = 2.0) -> Any:
    """Measure how far each two rows of (N, M) are apart, (N * (N - 1) / 2), as `F.pdist` does."""
    if x.dim() != 2 or x.shape[0] < 2 or x.shape[1] == 0 or not x.is_floating_point() or p < 0:
        return Fallback
    # each row and those after it
    differences = [x[first + 1 :] - x[first : first + 1] for first in range(x.shape[0] - 1)]
    return torch.linalg.vector_norm(torch.cat(differences), p, dim=-1)


def measure_matrices(
    x: torch.Tensor,
    ord: Union[float, str, None] = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: Optional[torch.dtype] = None,
    out: Optional[torch.Tensor] = None,
) -> Any:
    """Compute the norms of matrices of one or two rows or columns that need singular values: 2, -2 and "nuc".

    `Fallback` for larger ones, which have no closed form, and for the norms that the device has.
    """
    if ord not in _SINGULAR or out is not None or x.is_complex() or not _has_dimensions(x, dim):
        return Fallback
    rows, columns = (place % x.dim() for place in dim)
    if rows == columns or not 1 <= min(x.shape[rows], x.shape[columns]) <= 2:
        return Fallback
    matrices = x if dtype is None else x.to(dtype)
    if not matrices.is_floating_point():
        return Fallback
    largest, smallest, total = _list_singular(torch.movedim(matrices, (rows, columns), (-2, -1)))
    norms = {2: largest, -2: smallest, "nuc": total}[ord]
    if keepdim:
        for place in sorted((rows, columns)):
            norms = norms.unsqueeze(place)
    return norms


def _has_dimensions(x: torch.Tensor, dim: Sequence[int]) -> bool:
    return len(dim) == 2 and all(isinstance(place, int) and -x.dim() <= place < x.dim() for place in dim)


def _list_singular(matrices: torch.Tensor) -> List[torch.Tensor]:
    """List the singular values of (..., R, C), one of R and C at most 2: the largest, the smallest, and their sum."""
    vectors = matrices if matrices.shape[-2] <= 2 else matrices.transpose(-2, -1)
    if vectors.shape[-2] == 1:
        return [torch.linalg.vector_norm(vectors, 2, dim=(-2, -1))] * 3
    first, second = vectors.unbind(-2)
    # a triangle with the same singular values: the length of one, the other along it, and across it
    length = torch.linalg.vector_norm(first, 2, dim=-1)
    is_zero = length == 0
    direction = first / torch.where(is_zero, torch.ones_like(length, device=length.device), length).unsqueeze(-1)
    along = (direction * second).sum(-1)
    across = torch.linalg.vector_norm(second - direction * along.unsqueeze(-1), 2, dim=-1)
    total = _hypotenuse(length + across, along)
    largest = (total + _hypotenuse(length - across, along)) / 2
    # from the product of both, since their difference would cancel
    smallest = length * across / torch.where(largest == 0, torch.ones_like(largest, device=largest.device), largest)
    return [largest, smallest, total]


def _hypotenuse(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    # a norm has a gradient at zero, a square root has none
    return torch.linalg.vector_norm(torch.stack([a, b], -1), 2, dim=-1)


def _linalg_norm(
    x: torch.Tensor,
    ord: Union[float, str, None] = None,
    dim: Union[int, Sequence[int], None] = None,
    keepdim: bool = False,
    *,
    dtype: Optional[torch.dtype] = None,
    out: Optional[torch.Tensor] = None,
) -> Any:
    """Compute the norms of matrices; those of vectors are left to the device."""
    dims: Tuple[int, ...] = tuple(range(x.dim())) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    if ord is None or len(dims) != 2:
        return Fallback
    return measure_matrices(x, ord, dims, keepdim, dtype=dtype, out=out)


def _norm(
    x: torch.Tensor,
    p: Union[float, str] = "fro",
    dim: Union[int, Sequence[int], None] = None,
    keepdim: bool = False,
    out: Optional[torch.Tensor] = None,
    dtype: Optional[torch.dtype] = None,
) -> Any:
    """Compute nuclear norms: a number is the order of a norm of vectors here."""
    return _linalg_norm(x, p, dim, keepdim, dtype=dtype, out=out) if p == "nuc" else Fallback


def _norm_of_tensor(
    x: torch.Tensor,
    p: Union[float, str] = "fro",
    dim: Union[int, Sequence[int], None] = None,
    keepdim: bool = False,
    dtype: Optional[torch.dtype] = None,
) -> Any:
    return _norm(x, p, dim, keepdim, dtype=dtype)


SUBSTITUTES = (
    OperatorSubstitute("F.pdist", F.pdist, measure_pairs),
    OperatorSubstitute("torch.linalg.matrix_norm", torch.linalg.matrix_norm, measure_matrices),
    OperatorSubstitute("torch.linalg.norm", torch.linalg.norm, _linalg_norm),
    OperatorSubstitute("torch.norm", torch.norm, _norm),
    OperatorSubstitute("torch.norm", torch.Tensor.norm, _norm_of_tensor),
)
