"""This package tells how far numbers are apart, what is allowed, and how much of it is rounding.

Here nothing is judged: what is compared, and with which tolerance, says the caller. This package loads without torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, List, Sequence, Tuple

__all__ = ["Tolerance", "largest_difference", "relative_differences"]

# What is divided by at least, so that zeros are equal.
_SMALLEST_SCALE = 1e-300


@dataclass(frozen=True)
class Tolerance:
    """How far something may be from what it should be: relative to its scale, or absolutely."""

    relative: float
    absolute: float = 0.0

    def allowed_at(self, scale: float) -> float:
        """Return the largest difference that passes for something of this scale.

        >>> Tolerance(0.1, 2.0).allowed_at(50.0), Tolerance(0.1, 2.0).allowed_at(1.0)
        (5.0, 2.0)
        """
        return max(self.relative * scale, self.absolute)


def largest_difference(
    expected: Sequence[float],
    found: Sequence[float],
    *,
    scale_of: Callable[[float, float], float] = lambda one, other: max(abs(one), abs(other)),
) -> Tuple[float, int]:
    """Return the largest difference of two rows of numbers relative to their scale, and the place of it.

    The scale of two numbers is the larger one unless `scale_of` says otherwise. The difference is infinite where one
    is not a finite number.

    >>> largest_difference([1.0, 1.0], [1.0, 2.0])
    (0.5, 1)
    """
    differences = relative_differences(expected, found, scale_of=scale_of) or [0.0]
    worst = max(differences)
    return worst, differences.index(worst)


def relative_differences(
    expected: Sequence[float], found: Sequence[float], *, scale_of: Callable[[float, float], float]
) -> List[float]:
    """Return the differences of two rows of numbers relative to their scale, infinite where one is not finite.

    >>> relative_differences([1.0, 4.0], [1.0, 2.0], scale_of=lambda one, other: one)
    [0.0, 0.5]
    """
    differences = []
    for one, other in zip(expected, found):
        is_finite = math.isfinite(one) and math.isfinite(other)
        scale = max(scale_of(one, other), _SMALLEST_SCALE) if is_finite else 1.0
        differences.append(abs(one - other) / scale if is_finite else math.inf)
    return differences
