"""Find quantiles by a sort, and interpolate between the two values beside each.

The operator table has it for `torch.quantile` and `torch.nanquantile`.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Optional, Union

import torch

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "find_quantiles"]

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def find_quantiles(
    x: torch.Tensor,
    q: Union[float, torch.Tensor],
    dim: Optional[int] = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Optional[torch.Tensor] = None,
    ignores_nan: bool = False,
) -> Any:
    """Find quantiles along `dim`, or of all elements, as `torch.quantile` does; several become the first dimension.

    Values that are no numbers make a result that is none, unless they are ignored (`torch.nanquantile`).
    """
    if out is not None or interpolation not in _INTERPOLATIONS or not _are_quantiles(x, q):
        return Fallback
    if dim is not None and not -max(x.dim(), 1) <= dim < max(x.dim(), 1):
        return Fallback
    values = x.flatten() if dim is None or x.dim() == 0 else torch.movedim(x, dim, -1)
    wanted = q.reshape(-1) if isinstance(q, torch.Tensor) else torch.full((1,), q, dtype=x.dtype, device=x.device)
    is_missing = torch.isnan(values)
    # those that are missing come last
    ordered = torch.where(is_missing, torch.full_like(values, math.inf, device=x.device), values)
    ordered = torch.sort(ordered, dim=-1).values
    counts = (~is_missing).to(x.dtype).sum(-1, keepdim=True)
    last = counts - 1 if ignores_nan else torch.full_like(counts, values.shape[-1] - 1, device=x.device)
    found = _read_between(ordered, wanted * last.clamp(min=0), interpolation)
    is_none = counts == 0 if ignores_nan else counts < values.shape[-1]
    found = torch.where(is_none, torch.full_like(found, math.nan, device=x.device), found).movedim(-1, 0)
    if keepdim and dim is None:
        found = found.reshape(-1, *[1] * x.dim())
    elif keepdim and x.dim() > 0:
        found = found.unsqueeze(dim % x.dim() + 1)  # type: ignore[operator]
    return found if isinstance(q, torch.Tensor) and q.dim() == 1 else found.squeeze(0)


def _are_quantiles(x: torch.Tensor, q: Union[float, torch.Tensor]) -> bool:
    if not x.is_floating_point() or x.numel() == 0:
        return False
    if isinstance(q, torch.Tensor):
        return q.dim() <= 1 and q.dtype == x.dtype and q.numel() > 0
    return 0 <= q <= 1


def _read_between(ordered: torch.Tensor, places: torch.Tensor, interpolation: str) -> torch.Tensor:
    """Read (..., N) at places (..., Q) from 0 to N - 1, between two elements for most of them."""
    fixed = places.detach()
    if interpolation in ("lower", "higher", "nearest"):
        whole = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}[interpolation](fixed)
        return ordered.gather(-1, whole.to(torch.int64))
    first = torch.floor(fixed)
    below, above = (ordered.gather(-1, whole.to(torch.int64)) for whole in (first, torch.ceil(fixed)))
    share = torch.full_like(places, 0.5, device=places.device) if interpolation == "midpoint" else places - first
    return below + share * (above - below)


SUBSTITUTES = tuple(
    OperatorSubstitute(f"torch.{name}", target, functools.partial(find_quantiles, ignores_nan=name == "nanquantile"))
    for name in ("quantile", "nanquantile")
    for target in (getattr(torch, name), getattr(torch.Tensor, name))
)
