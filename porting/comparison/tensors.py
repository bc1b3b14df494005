"""Compare tensors by their elements, as vectors, by where they are not finite, and by rounding alone.

Proofs, parity of engines and the benchmark use it.
"""

from __future__ import annotations

import math
from typing import Iterable, Optional

import torch

__all__ = [
    "change_last_bits",
    "change_weights",
    "distance_of",
    "have_same_specials",
    "largest_magnitude",
    "round_at_random",
    "rounding_of",
]

# Sums of many terms are off by several units in single precision, more in one order than in another; a half is the
# rounded result of such a sum. The change is this large, instead of what it does being multiplied, because steps are
# not linear: where the sign of a gradient is noise, Adam moves its weight by the full step or not at all.
_UNITS = {torch.float16: 2.0, torch.bfloat16: 2.0}
_UNITS_OF_LONG_TYPES = 16.0
_BLOCK = 1 << 20


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of the elements; 0 where there are none.

    >>> largest_magnitude(torch.tensor([1.0, -2.0])), largest_magnitude(torch.tensor([]))
    (2.0, 0.0)
    """
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def distance_of(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the distance of two tensors as vectors, in double precision; elements that are not finite are left out.

    >>> distance_of(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0]))
    5.0
    """
    return float((one.double() - other.double()).nan_to_num(posinf=0.0, neginf=0.0).norm())


def have_same_specials(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether NaN and the infinities are at the same places."""
    return torch.equal(one.isnan(), other.isnan()) and all(
        torch.equal(one == special, other == special) for special in (math.inf, -math.inf)
    )


def rounding_of(tensor: torch.Tensor, *, units: float) -> float:
    """Return how much `units` in the last place of the largest element are.

    >>> rounding_of(torch.tensor([1.0, -4.0]), units=2) == 8 * torch.finfo(torch.float32).eps
    True
    """
    return units * torch.finfo(tensor.dtype).eps * largest_magnitude(tensor)


def change_last_bits(value: torch.Tensor, generator: torch.Generator, *, relative: Optional[float] = None) -> None:
    """Change the floating-point numbers of `value`, up or down, in their last bits; not the whole ones.

    By 16 units in the last place, or 2 of a half type; or by `relative`, as a type that is coarser would.
    """
    if not value.is_floating_point() or not value.numel():
        return
    if relative is None:
        relative = torch.finfo(value.dtype).eps * _UNITS.get(value.dtype, _UNITS_OF_LONG_TYPES)
    # a block at a time: what is made on the way would be three times as large as the tensor
    for block in value.view(-1).split(_BLOCK) if value.is_contiguous() else [value]:
        # in int8, an eighth of the memory of default integers
        signs = torch.randint(0, 2, block.shape, generator=generator, dtype=torch.int8) * 2 - 1
        block.add_((block * signs * relative).masked_fill_(block == block.round(), 0.0))


def change_weights(weights: Iterable[torch.Tensor], seed: int, *, relative: Optional[float] = None) -> None:
    """Change all weights in their last bits, as another start of the same training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in weights:
            change_last_bits(weight, generator, relative=relative)


def round_at_random(
    value: torch.Tensor, dtype: torch.dtype, generator: Optional[torch.Generator] = None
) -> torch.Tensor:
    """Round up or down in proportion to the distance, by torch's global random stream unless a `generator` is given.

    >>> round_at_random(torch.tensor([0.5, 70000.0]), torch.float16)
    tensor([0.5000,    inf], dtype=torch.float16)
    """
    # Of the two neighbours in the type, the farther one is taken as often as the value is near to it, so that the mean
    # of many roundings is the value itself.
    nearest = value.to(dtype)
    wide = nearest.float()
    towards = torch.where(wide < value, math.inf, -math.inf).to(dtype)
    other = torch.nextafter(nearest, towards)
    distance = (value - wide).abs()
    gap = (other.float() - wide).abs()
    draws = torch.rand(value.shape, generator=generator, dtype=value.dtype, device=value.device)
    # the neighbour of the largest number is infinity, which chance must not choose
    return torch.where((draws * gap < distance) & other.isfinite(), other, nearest)
