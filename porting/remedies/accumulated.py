"""Compute running extremes and running log-sums of exponentials, in as many steps as the length has bits.

The operator table has it for `torch.cummax`, `torch.cummin` and `torch.logcumsumexp`.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Optional, Sequence

import torch

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "add_exponentials", "find_extremes"]


def add_exponentials(x: torch.Tensor, dim: int, *, out: Optional[torch.Tensor] = None) -> Any:
    """Sum the exponentials up to each position of `dim`, in logarithms, as `torch.logcumsumexp` does."""
    if out is not None or not _has_dimension(x, dim) or not x.is_floating_point():
        return Fallback
    if x.dim() == 0:
        return x.clone()
    (result,) = _accumulate([x], dim % x.dim(), _add_pair)
    return result


def _has_dimension(x: torch.Tensor, dim: object) -> bool:
    num_dims = max(x.dim(), 1)
    return isinstance(dim, int) and -num_dims <= dim < num_dims


def _add_pair(earlier: Sequence[torch.Tensor], later: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    top = torch.maximum(earlier[0], later[0])
    is_infinite = torch.isinf(top)
    # infinities have no distance; where both are minus infinity there is nothing to add, nor a gradient
    distance = torch.where(is_infinite, torch.zeros_like(top, device=top.device), earlier[0] - later[0])
    total = top + torch.log1p(torch.exp(-distance.abs()))
    return [torch.where(is_infinite, top, total)]


def find_extremes(
    x: torch.Tensor,
    dim: int,
    *,
    out: Optional[torch.Tensor] = None,
    is_better: Callable[..., Any],
    make: Callable[..., Any],
) -> Any:
    """Find the extreme up to each position of `dim`, the last of equal ones, as `torch.cummax` does."""
    if out is not None or not _has_dimension(x, dim):
        return Fallback
    if x.dim() == 0:
        return make((x.clone(), torch.zeros_like(x, dtype=torch.int64, device=x.device)))
    dim = dim % x.dim()
    places = torch.arange(x.shape[dim], device=x.device).reshape(-1, *[1] * (x.dim() - dim - 1)).expand(x.shape)
    _values, indices = _accumulate([x.detach(), places], dim, functools.partial(_choose_extreme, is_better))
    # the gradient goes to the element that was found
    return make((x.gather(dim, indices), indices))


def _choose_extreme(
    is_better: Callable[..., Any], earlier: Sequence[torch.Tensor], later: Sequence[torch.Tensor]
) -> List[torch.Tensor]:
    is_later = is_better(later[0], earlier[0])
    if later[0].is_floating_point():
        # what is no number is every extreme
        is_later = (is_later & ~torch.isnan(earlier[0])) | torch.isnan(later[0])
    return [torch.where(is_later, one, other) for one, other in zip(later, earlier)]


def _accumulate(
    values: Sequence[torch.Tensor], dim: int, combine: Callable[..., List[torch.Tensor]]
) -> List[torch.Tensor]:
    """Combine the values up to each position of `dim`: those of 2, 4, 8 ... positions after each other."""
    results, step, length = list(values), 1, values[0].shape[dim]
    while step < length:
        earlier = [value.narrow(dim, 0, length - step) for value in results]
        later = [value.narrow(dim, step, length - step) for value in results]
        combined = combine(earlier, later)
        results = [torch.cat([value.narrow(dim, 0, step), rest], dim) for value, rest in zip(results, combined)]
        step *= 2
    return results


_maximum = functools.partial(find_extremes, is_better=torch.ge, make=torch.return_types.cummax)
_minimum = functools.partial(find_extremes, is_better=torch.le, make=torch.return_types.cummin)

SUBSTITUTES = tuple(
    OperatorSubstitute(f"torch.{name}", target, compute)
    for name, compute in (("logcumsumexp", add_exponentials), ("cummax", _maximum), ("cummin", _minimum))
    for target in (getattr(torch, name), getattr(torch.Tensor, name))
)
