"""Read images at the places of a grid, as rows of a table, and make the grids of affine maps.

The operator table has it for `F.grid_sample` and `F.affine_grid`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "make_affine_grid", "sample_grid"]

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")

# torch's constant of the cubic polynomials
_CUBIC = -0.75

_Tap = Tuple[torch.Tensor, torch.Tensor]
"""Positions along one dimension, whole numbers as floats, and what a value there counts; both (N, places)."""


def sample_grid(
    x: torch.Tensor,
    grid: torch.Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Optional[bool] = None,
) -> Any:
    """Read images (N, C, H, W), or volumes (N, C, D, H, W), at the places of a grid, as `F.grid_sample` does.

    The grid is (N, ..., 2) or (N, ..., 3), x first, from -1 to 1. `Fallback` for what torch refuses.
    """
    if not _are_sampled(x, grid, mode, padding_mode):
        return Fallback
    places = grid.reshape(grid.shape[0], -1, grid.shape[-1])
    # halves are too coarse for positions in an image
    places = places.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else places
    # the grid counts its dimensions from the last of the image
    taps = [
        _list_taps(places[..., -1 - dim], size, mode, padding_mode, bool(align_corners))
        for dim, size in enumerate(x.shape[2:])
    ]
    values = _sum_taps(x, taps)
    return values.movedim(-1, 1).reshape(x.shape[0], x.shape[1], *grid.shape[1:-1])


def _are_sampled(x: torch.Tensor, grid: torch.Tensor, mode: object, padding_mode: object) -> bool:
    num_dims = x.dim() - 2
    fits = num_dims in (2, 3) and grid.dim() == x.dim() and grid.shape[-1] == num_dims
    is_known = mode in _MODES and padding_mode in _PADDINGS and not (mode == "bicubic" and num_dims == 3)
    return fits and is_known and x.dtype == grid.dtype and x.shape[0] == grid.shape[0] and x.numel() > 0


def _list_taps(
    coordinates: torch.Tensor, size: int, mode: str, padding_mode: str, align_corners: bool
) -> Sequence[_Tap]:
    """Say which positions of a dimension of `size` are read for coordinates (N, places) from -1 to 1."""
    if align_corners:
        at = (coordinates + 1) / 2 * (size - 1)
    else:
        at = ((coordinates + 1) * size - 1) / 2
    if mode != "bicubic":
        at = _pad_places(at, size, padding_mode, align_corners)
    if mode == "nearest":
        return [(torch.round(at.detach()), torch.ones_like(at, device=at.device))]
    first = torch.floor(at.detach())
    rest = at - first
    if mode == "bilinear":
        return [(first, 1 - rest), (first + 1, rest)]
    weights = (_weigh_far(rest + 1), _weigh_near(rest), _weigh_near(1 - rest), _weigh_far(2 - rest))
    return [
        (_pad_places(first + step, size, padding_mode, align_corners), weight)
        for step, weight in zip((-1, 0, 1, 2), weights)
    ]


def _weigh_near(distance: torch.Tensor) -> torch.Tensor:
    """Weigh values at distances up to 1 by a cubic polynomial."""
    return ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance * distance + 1


def _weigh_far(distance: torch.Tensor) -> torch.Tensor:
    """Weigh values at distances from 1 to 2 by a cubic polynomial."""
    return ((_CUBIC * distance - 5 * _CUBIC) * distance + 8 * _CUBIC) * distance - 4 * _CUBIC


def _pad_places(at: torch.Tensor, size: int, padding_mode: str, align_corners: bool) -> torch.Tensor:
    """Move places outside of a dimension to its border, or mirror them; zeros are left where they are."""
    if padding_mode == "zeros":
        return at
    if padding_mode == "reflection":
        at = _reflect(at, size, align_corners)
    # a place on the border has no gradient in torch, so this is no `clamp`
    at = torch.where(at > 0, at, torch.zeros_like(at, device=at.device))
    return torch.where(at < size - 1, at, torch.full_like(at, size - 1, device=at.device))


def _reflect(at: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    """Mirror places at the centres of the outer elements, or at their outer edges, as often as it takes."""
    low, span = (0.0, size - 1) if align_corners else (-0.5, size)
    if span == 0:
        return torch.zeros_like(at, device=at.device)
    distance = torch.where(at < low, low - at, at - low)
    turns = torch.floor(distance.detach() / span)
    rest = distance - turns * span
    is_even = turns - 2 * torch.floor(turns / 2) == 0
    return torch.where(is_even, rest, span - rest) + low


def _sum_taps(x: torch.Tensor, taps: Sequence[Sequence[_Tap]]) -> torch.Tensor:
    """Add up what is read of (N, C, *sizes), (N, places, C); `taps` are those of each dimension."""
    num_samples, num_channels, *sizes = x.shape
    rows = x.movedim(1, -1).reshape(-1, num_channels)
    outside = rows.shape[0]
    # what lies outside is a row of zeros: a weight of zero would not do for infinite values
    rows = torch.cat([rows, torch.zeros(1, num_channels, dtype=x.dtype, device=x.device)])
    starts = torch.arange(num_samples, dtype=torch.int32, device=x.device).unsqueeze(1) * math.prod(sizes)
    read = [[_number_positions(position, size) for position, _weight in tap] for tap, size in zip(taps, sizes)]
    total: Any = None
    for choice in itertools.product(*(range(len(tap)) for tap in taps)):
        index, is_inside, weight = starts, None, None
        for dim, number in enumerate(choice):
            position, is_within = read[dim][number]
            index = index + position * math.prod(sizes[dim + 1 :])
            is_inside = is_within if is_inside is None else is_inside & is_within
            weight = taps[dim][number][1] if weight is None else weight * taps[dim][number][1]
        index = torch.where(is_inside, index, torch.full_like(index, outside, device=x.device))  # type: ignore[arg-type]
        values = rows.index_select(0, index.flatten()).reshape(num_samples, -1, num_channels)
        weighed = values * weight.unsqueeze(-1).to(x.dtype)  # type: ignore[union-attr]
        total = weighed if total is None else total + weighed
    return total


def _number_positions(position: torch.Tensor, size: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make whole numbers of positions, 0 for those outside, and say which lie inside."""
    is_inside = (position >= 0) & (position <= size - 1)
    return torch.where(is_inside, position, torch.zeros_like(position)).to(torch.int32), is_inside


def _sample_by_number(
    x: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """Take the modes as torch's own operators do."""
    return sample_grid(x, grid, _MODES[interpolation_mode], _PADDINGS[padding_mode], align_corners)


def make_affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: Optional[bool] = None) -> Any:
    """Make the grid (N, ..., 2) or (N, ..., 3) that affine maps (N, 2, 3) or (N, 3, 4) give for images of `size`."""
    num_dims = len(size) - 2
    if num_dims not in (2, 3) or tuple(theta.shape) != (size[0], num_dims, num_dims + 1) or min(size) <= 0:
        return Fallback
    grid: Any = theta[:, :, -1].reshape(-1, *[1] * num_dims, num_dims)
    for dim, length in enumerate(size[2:]):
        shape = [1] * (num_dims + 2)
        shape[dim + 1] = length
        along = _spread_places(length, bool(align_corners), theta).reshape(shape)
        # x, the first of the map's columns, is the last dimension
        grid = grid + along * theta[:, :, num_dims - 1 - dim].reshape(-1, *[1] * num_dims, num_dims)
    return grid


def _spread_places(length: int, align_corners: bool, like: torch.Tensor) -> torch.Tensor:
    numbers = torch.arange(length, device=like.device).to(torch.float32)
    if length == 1:
        spread = numbers * 0
    elif align_corners:
        spread = numbers * (2 / (length - 1)) - 1
    else:
        spread = (2 * numbers + 1) / length - 1
    return spread.to(like.dtype)


_OPERATORS: List[Any] = [torch.grid_sampler, torch.grid_sampler_2d, torch.grid_sampler_3d]

SUBSTITUTES = (
    OperatorSubstitute("F.grid_sample", F.grid_sample, sample_grid),
    *(OperatorSubstitute(f"torch.{target.__name__}", target, _sample_by_number) for target in _OPERATORS),
    OperatorSubstitute("F.affine_grid", F.affine_grid, make_affine_grid),
    OperatorSubstitute("torch.affine_grid_generator", torch.affine_grid_generator, make_affine_grid),
)
