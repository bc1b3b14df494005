"""Find errors of one sign: rounding makes numbers too large as often as too small, a fault makes all so.

So a factor that many numbers have in common is measured far more exactly than any of them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

__all__ = ["Shift", "Shifts", "find_slopes"]

# How many times the usual factor of runs that differ by rounding one may be; and more of a few numbers, whose factor is
# now and then that of a kernel which adds them up in half precision.
_MARGIN, _MARGIN_OF_FEW = 8.0, 6.0
# Units in the last place by which all numbers may be off: kernels may round to one side.
_UNITS = 0.5
# By which share each number is off at least where a kernel adds up in float16: two of its units.
_ADDED_IN_HALF = 2.0**-9
# A tensor that rounding changes by this share has no factor of its own.
_UNDECIDED = 0.3


class Shift(NamedTuple):
    """Of one tensor: how many times the allowed factor it has, and its distance in that which is usual of runs."""

    factor: float
    ratio: float


class Shifts:
    """The factors of a tensor in step after step, and of all its steps together."""

    def __init__(self, unit: float) -> None:
        """Begin before the first step; `unit` is that of the type that is computed in."""
        self._unit = unit
        self._sum, self._weight = torch.zeros(()), 0.0

    def measure(self, values: torch.Tensor, least: float) -> Shift:
        """Measure the next step: a row of each run, the first one plain and the last one the one that is judged.

        Runs that were not so long have rows that are not numbers. `least` is how far rounding leads at least.
        """
        centre = values[:-1].nanmean(0)
        apart = values - centre
        distances, norm = apart.norm(dim=1), float(centre.norm())
        usual = max(float(distances[1:-1].nanmedian()), least, _ADDED_IN_HALF * norm)
        if not 0.0 < usual <= _UNDECIDED * norm:
            return Shift(0.0, 0.0)
        ratio = float(distances[-1]) / max(_find_spread(distances), least)
        slopes, weight = find_slopes(apart, centre), values.shape[1] * (norm / usual) ** 2
        self._sum, self._weight = self._sum + weight * slopes, self._weight + weight
        allowed = 1 + _MARGIN_OF_FEW / math.sqrt(values.shape[1])
        # a tensor that is stored in half may be off by its own last place
        unit = max(self._unit, 2 * least / norm)
        alone = self._compare_spread(slopes, weight, unit)
        together = self._compare_spread(self._sum / self._weight, self._weight, unit)
        return Shift(max(alone, together) / allowed, ratio)

    def _compare_spread(self, slopes: torch.Tensor, weight: float, unit: float) -> float:
        # that of independent errors, where a few runs happen to agree
        usual = max(_find_spread(slopes), weight**-0.5)
        return abs(float(slopes[-1])) / max(_MARGIN * usual, _UNITS * unit)


def find_slopes(differences: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Return by which factor of `direction` each row of `differences` is off, with the least sum of what is left over.

    It is a median, to which a few elements that rounding has led elsewhere, as where it opens a ReLU, are nothing.

    >>> find_slopes(torch.tensor([[0.1, 0.2, 9.0, -0.4]]), torch.tensor([1.0, 2.0, 3.0, -4.0]))
    tensor([0.1000])
    """
    counted = direction != 0
    factors, weights = differences[:, counted] / direction[counted], direction[counted].abs()
    order = factors.argsort(1)
    below = weights[order].cumsum(1) < weights.sum() / 2
    middle = below.sum(1, keepdim=True).clamp(max=len(weights) - 1)
    return factors.gather(1, order.gather(1, middle)).squeeze(1)


def _find_spread(rows: torch.Tensor) -> float:
    """Return the usual size of the runs' numbers; the first is plain, and the last is judged."""
    return math.sqrt(float(rows[1:-1].square().nanmean()))
