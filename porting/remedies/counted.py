"""Count by comparisons where values belong in a sequence, which are in a set, and how many fall into each bin.

The operator table has it for `torch.searchsorted`, `torch.isin` and `torch.histc`.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "count_bins", "find_members", "find_positions"]


def find_positions(
    sorted_sequence: torch.Tensor,
    input: Optional[torch.Tensor] = None,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: Optional[str] = None,
    out: Optional[torch.Tensor] = None,
    sorter: Optional[torch.Tensor] = None,
    **number: Any,
) -> Any:
    """Count the elements of a sorted sequence (..., N) below each value (..., M), as `torch.searchsorted` does.

    Each value is compared with the whole sequence, which takes N * M truth values.
    """
    # torch's name of a value that is a number
    values = number.pop("self", input)
    is_right = right or side == "right"
    if out is not None or number or values is None or (right and side == "left") or side not in (None, "left", "right"):
        return Fallback
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if isinstance(values, torch.Tensor):
        values = values.unsqueeze(-1)
        if sorted_sequence.dim() > 1:
            if values.shape[:-2] != sorted_sequence.shape[:-1]:
                return Fallback
            sorted_sequence = sorted_sequence.unsqueeze(-2)
    # what is no number is above all, so the comparison is turned round
    is_above = sorted_sequence > values if is_right else sorted_sequence >= values
    counts = (~is_above).sum(-1)
    return counts.to(torch.int32) if out_int32 else counts


def find_members(
    elements: Optional[torch.Tensor] = None,
    test_elements: Optional[torch.Tensor] = None,
    *,
    invert: bool = False,
    **more: Any,
) -> Any:
    """Say which elements are among the others, as `torch.isin` does; each is compared with all of them.

    Numbers have names of their own in torch, `element` and `test_element`.
    """
    elements, tested = more.pop("element", elements), more.pop("test_element", test_elements)
    # a promise that comparisons have no use for
    more.pop("assume_unique", None)
    if more or elements is None or tested is None:
        return Fallback
    if not isinstance(tested, torch.Tensor):
        found = elements == tested
    elif tested.numel() == 0:
        return Fallback
    elif isinstance(elements, torch.Tensor):
        found = (elements.unsqueeze(-1) == tested.flatten()).any(-1)
    else:
        found = (tested == elements).any()
    return ~found if invert else found


def count_bins(
    x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Optional[torch.Tensor] = None
) -> Any:
    """Count how many elements fall into each of `bins` equal ranges, as `torch.histc` does; without a gradient.

    Where `min` and `max` are equal, the range is that of the elements. Whole numbers are counted too, as on GPUs.
    Counts above 2 ** 24 are not exact.
    """
    if out is not None or not isinstance(bins, int) or bins < 1 or min > max:
        return Fallback
    if x.dtype is torch.bool or x.is_complex() or x.numel() == 0:
        return Fallback
    values = x.detach().flatten()
    # halves do not count far
    values = values if x.dtype in (torch.float32, torch.float64) else values.to(torch.float32)
    if min == max:
        low, high = values.amin(), values.amax()
        is_point = low == high
        low, high = torch.where(is_point, low - 1, low), torch.where(is_point, high + 1, high)
    else:
        low = torch.full_like(values[0], min, device=x.device)
        high = torch.full_like(values[0], max, device=x.device)
    is_inside = (values >= low) & (values <= high)
    # the last bin has its upper edge
    places = torch.floor((values - low) * bins / (high - low)).clamp(0, bins - 1)
    places = torch.where(is_inside, places, torch.zeros_like(places, device=x.device)).to(torch.int64)
    counts = torch.zeros(bins, dtype=values.dtype, device=x.device)
    return counts.scatter_add(0, places, is_inside.to(values.dtype)).to(x.dtype)


SUBSTITUTES = (
    OperatorSubstitute("torch.searchsorted", torch.searchsorted, find_positions),
    OperatorSubstitute("torch.isin", torch.isin, find_members),
    OperatorSubstitute("torch.histc", torch.histc, count_bins),
    OperatorSubstitute("torch.histc", torch.Tensor.histc, count_bins),
)
