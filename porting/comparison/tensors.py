"""Differences of tensors: of their elements, as vectors, and of where they are not finite."""

from __future__ import annotations

import math

import torch

__all__ = ["distance_of", "have_same_specials", "largest_distance", "largest_magnitude", "rounding_of"]


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Return the largest magnitude of the elements; 0 where there are none.

    >>> largest_magnitude(torch.tensor([1.0, -2.0])), largest_magnitude(torch.tensor([]))
    (2.0, 0.0)
    """
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def largest_distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of elements at the same place; equal infinities are no difference."""
    return largest_magnitude(torch.where(one == other, torch.zeros_like(one), (one - other).abs()))


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
