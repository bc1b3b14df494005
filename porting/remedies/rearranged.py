"""Rearrange and repeat elements by views, write to every n-th position, and pool over cells of any size.

The operator table has it for `torch.repeat_interleave`, `torch.kron`, `F.adaptive_max_pool2d` and others.
"""

from __future__ import annotations

from functools import partial
from typing import Any, List, Optional, Sequence, Union

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute
from porting.torch_insides.operators import ADAPTIVE_MAXIMA

__all__ = ["SUBSTITUTES", "find_places", "repeat_elements"]


def repeat_elements(
    x: torch.Tensor, repeats: Union[int, torch.Tensor], dim: Optional[int] = None, *, output_size: Optional[int] = None
) -> Any:
    """Repeat each element of a dimension as often as one number says; `Fallback` for numbers that are a tensor."""
    if not isinstance(repeats, int):
        return Fallback
    x, dim = (x.flatten(), 0) if dim is None else (x, dim % x.dim())
    repeated = x.unsqueeze(dim + 1).expand(*x.shape[: dim + 1], repeats, *x.shape[dim + 1 :])
    return repeated.reshape(*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1 :])


def _unflatten(x: torch.Tensor, dim: int, sizes: Sequence[int]) -> Any:
    if not isinstance(dim, int):
        return Fallback
    dim = dim % x.dim()
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _kron(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    num_dims = max(x.dim(), y.dim())
    left = [1] * (num_dims - x.dim()) + list(x.shape)
    right = [1] * (num_dims - y.dim()) + list(y.shape)
    blocks = x.reshape([size for length in left for size in (length, 1)])
    products = blocks * y.reshape([size for length in right for size in (1, length)])
    return products.reshape([a * b for a, b in zip(left, right)])


def _channel_shuffle(x: torch.Tensor, groups: int) -> torch.Tensor:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    return split.transpose(1, 2).reshape(x.shape)


def _pixel_unshuffle(x: torch.Tensor, downscale_factor: int) -> torch.Tensor:
    factor = downscale_factor
    *outer, channels, height, width = x.shape
    cells = x.reshape(*outer, channels, height // factor, factor, width // factor, factor)
    first = len(outer)
    order = [*range(first + 1), first + 2, first + 4, first + 1, first + 3]
    return cells.permute(order).reshape(*outer, channels * factor * factor, height // factor, width // factor)


def _pool(
    x: torch.Tensor, output_size: Union[int, Sequence[Optional[int]]], return_indices: bool = False, *, num_dims: int
) -> Any:
    """Take the largest of each cell of a grid that divides the last `num_dims` dimensions."""
    if return_indices:
        return Fallback
    sizes = [output_size] * num_dims if isinstance(output_size, int) else list(output_size)
    for dim, size in zip(range(x.dim() - num_dims, x.dim()), sizes):
        if size is None:
            continue  # it stays as it is
        length = x.shape[dim]
        cells = [
            x.narrow(dim, index * length // size, -(-(index + 1) * length // size) - index * length // size)
            for index in range(size)
        ]
        x = torch.cat([cell.amax(dim, keepdim=True) for cell in cells], dim)
    return x


def find_places(mask: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """Find the places (size, dimensions) of what is not zero, at most `size`; `fill_value` where there are fewer."""
    flat = (mask != 0).flatten()
    count = flat.shape[0]
    # those that are counted have the smaller keys, each group in its order
    keys = torch.arange(count, device=mask.device) + torch.where(flat, 0, count).to(torch.int32)
    order = torch.sort(keys.to(torch.float32) if count < 1 << 23 else keys).indices[:size]
    if size > count:
        order = torch.cat([order, torch.zeros(size - count, dtype=order.dtype, device=mask.device)])
    is_there = torch.arange(size, device=mask.device) < flat.to(torch.int32).sum()
    columns: List[torch.Tensor] = []
    for length in reversed(mask.shape):
        columns.insert(0, order % length)
        order = torch.div(order, length, rounding_mode="floor")
    places = torch.stack(columns, -1)
    return torch.where(is_there.unsqueeze(-1), places, torch.full_like(places, fill_value, device=mask.device))


def write_steps(x: torch.Tensor, index: object, value: Union[torch.Tensor, float]) -> Any:
    """Write to every n-th position of one dimension; `Fallback` for other writes."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(not isinstance(part, slice) and part is not Ellipsis for part in parts):
        return Fallback
    if Ellipsis in parts:
        place = parts.index(Ellipsis)
        parts = (*parts[:place], *[slice(None)] * (x.dim() - len(parts) + 1), *parts[place + 1 :])
    dims = [dim for dim, part in enumerate(parts) if part != slice(None)]
    if len(dims) != 1 or parts[dims[0]].step in (None, 1):
        return Fallback
    dim, length = dims[0], x.shape[dims[0]]
    start, stop, step = parts[dim].indices(length)
    positions = torch.arange(length, device=x.device)
    count = len(range(start, stop, step))
    if count == 0:
        return None
    is_written = (positions >= start) & (positions < stop) & ((positions - start) % step == 0)
    is_written = is_written.reshape(-1, *[1] * (x.dim() - dim - 1))
    if isinstance(value, torch.Tensor):
        shape = [count if other == dim else size for other, size in enumerate(x.shape)]
        source = torch.div((positions - start).clamp(0, step * (count - 1)), step, rounding_mode="floor")
        value = value.to(x.dtype).expand(shape).index_select(dim, source)
    else:
        value = torch.full_like(x, value, device=x.device)
    x.copy_(torch.where(is_written, value, x))
    return None


_COMPUTED: Any = (
    ("torch.Tensor.__setitem__", write_steps, (torch.Tensor.__setitem__,)),
    ("torch.repeat_interleave", repeat_elements, (torch.repeat_interleave, torch.Tensor.repeat_interleave)),
    ("torch.unflatten", _unflatten, (getattr(torch, "unflatten", None), torch.Tensor.unflatten)),
    ("torch.kron", _kron, (torch.kron, torch.Tensor.kron)),
    ("torch.channel_shuffle", _channel_shuffle, (torch.channel_shuffle, F.channel_shuffle)),
    ("torch.pixel_unshuffle", _pixel_unshuffle, (torch.pixel_unshuffle, F.pixel_unshuffle)),
    ("F.adaptive_max_pool1d", partial(_pool, num_dims=1), (F.adaptive_max_pool1d, torch.adaptive_max_pool1d)),
    ("F.adaptive_max_pool2d", partial(_pool, num_dims=2), (F.adaptive_max_pool2d, ADAPTIVE_MAXIMA[0])),
    ("F.adaptive_max_pool3d", partial(_pool, num_dims=3), (F.adaptive_max_pool3d, ADAPTIVE_MAXIMA[1])),
    ("torch.nonzero_static", find_places, (getattr(torch, "nonzero_static", None),)),
)

SUBSTITUTES = tuple(
    OperatorSubstitute(name, target, compute)
    for name, compute, targets in _COMPUTED
    for target in dict.fromkeys(targets)
    if target is not None
)
