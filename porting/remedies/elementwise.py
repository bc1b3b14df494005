"""Compute functions of single elements, and a few reductions, by arithmetic, comparisons and sorting.

The operator table has it for `torch.xlogy`, `torch.nan_to_num`, `torch.kthvalue` and others.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Union

import torch

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES"]


def _xlogy(x: Union[torch.Tensor, float], y: Union[torch.Tensor, float]) -> Any:
    if not isinstance(x, torch.Tensor) or not isinstance(y, torch.Tensor):
        return Fallback
    # where the factor is zero there is no logarithm, nor a gradient of one
    is_zero = (x == 0) & ~torch.isnan(y)
    logs = torch.log(torch.where(is_zero, torch.ones_like(y, device=y.device), y))
    return torch.where(is_zero, torch.zeros_like(logs, device=logs.device), x * logs)


def _logaddexp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    top = torch.maximum(x, y).detach()
    # two infinities of one sign are their own sum
    top = torch.where(torch.isinf(top), torch.zeros_like(top, device=top.device), top)
    return torch.log(torch.exp(x - top) + torch.exp(y - top)) + top


def _nan_to_num(
    x: torch.Tensor, nan: float = 0.0, posinf: Optional[float] = None, neginf: Optional[float] = None
) -> Any:
    if not x.is_floating_point():
        return x.clone()
    limits = torch.finfo(x.dtype)
    top, bottom = limits.max if posinf is None else posinf, limits.min if neginf is None else neginf
    x = torch.where(torch.isnan(x), torch.full_like(x, nan or 0.0, device=x.device), x)
    x = torch.where(x == math.inf, torch.full_like(x, top, device=x.device), x)
    return torch.where(x == -math.inf, torch.full_like(x, bottom, device=x.device), x)


def _sinc(x: torch.Tensor) -> torch.Tensor:
    is_zero = x == 0
    angle = math.pi * torch.where(is_zero, torch.ones_like(x, device=x.device), x)
    return torch.where(is_zero, torch.ones_like(x, device=x.device), torch.sin(angle) / angle)


def _bitwise_xor(x: object, y: object) -> Any:
    are_bool = all(isinstance(value, bool) or getattr(value, "dtype", None) is torch.bool for value in (x, y))
    return x != y if are_bool else Fallback


def _aminmax(x: torch.Tensor, *, dim: Optional[int] = None, keepdim: bool = False) -> Any:
    dims = list(range(x.dim())) if dim is None else [dim]
    return torch.return_types.aminmax((x.amin(dims, keepdim), x.amax(dims, keepdim)))


def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, places = torch.sort(x, dim=dim, stable=True)
    found: Any = [part.narrow(dim, k - 1, 1) for part in (values, places)]
    make: Any = torch.return_types.kthvalue
    return make(found if keepdim else [part.squeeze(dim) for part in found])


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    # an order that nobody asked for may be any
    return Fallback if sorted else torch.topk(x, k, dim, largest, sorted=True)


def _nanmean(x: torch.Tensor, dim: Union[int, List[int], None] = None, keepdim: bool = False) -> torch.Tensor:
    dims = list(range(x.dim())) if dim is None else dim
    is_missing = torch.isnan(x)
    values = torch.where(is_missing, torch.zeros_like(x, device=x.device), x)
    return values.sum(dims, keepdim) / (~is_missing).to(x.dtype).sum(dims, keepdim)


_COMPUTED: Any = {
    "xlogy": _xlogy,
    "logaddexp": _logaddexp,
    "hypot": lambda x, y: torch.sqrt(x * x + y * y),
    "nan_to_num": _nan_to_num,
    "sinc": _sinc,
    "heaviside": lambda x, values: torch.where(x == 0, values.to(x.dtype), (x > 0).to(x.dtype)),
    "sgn": lambda x: x.sign(),
    "logical_xor": lambda x, y: (x != 0) != (y != 0),
    "bitwise_xor": _bitwise_xor,
    "dist": lambda x, y, p=2.0: torch.linalg.vector_norm(x - y, p),
    "aminmax": _aminmax,
    "kthvalue": _kthvalue,
    "nanmean": _nanmean,
    "topk": _topk,
}

SUBSTITUTES = (
    *(
        OperatorSubstitute(f"torch.{name}", target, compute)
        for name, compute in _COMPUTED.items()
        for target in (getattr(torch, name), getattr(torch.Tensor, name))
    ),
    OperatorSubstitute("torch.xlogy", torch.special.xlogy, _xlogy),
    OperatorSubstitute("torch.sinc", torch.special.sinc, _sinc),
    OperatorSubstitute("torch.bitwise_xor", torch.Tensor.__xor__, _bitwise_xor),
)
