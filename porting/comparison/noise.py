"""The noise band of a quantity: what rounding may do to it, from runs that are right and rounded otherwise."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Iterable, List, Sequence

__all__ = ["MARGIN", "NOTHING", "UNDECIDED", "Noise", "list_furthest"]

MARGIN = 4.0
"""How much further than the furthest of a few runs another one may be: they are some examples of many."""

NOTHING = 1e-7
"""A tensor of this size beside the others of its kind is rounded as those are."""

UNDECIDED = 0.1
"""What rounding changes by this share is noise, and has no value or sign of its own."""


@dataclass(frozen=True)
class Noise:
    """How far rounding has led at most in some runs (`furthest`), and how far it may lead another one.

    `least` is what counts as nothing, whatever the runs say.

    >>> Noise(1e-6).explains(3e-6), Noise(1e-6).explains(5e-6), Noise(1e-6, least=1e-5).explains(5e-6)
    (True, False, True)
    """

    furthest: float
    margin: float = MARGIN
    least: float = 0.0

    @property
    def band(self) -> float:
        """The largest error that rounding explains."""
        return max(self.margin * self.furthest, self.least)

    def explains(self, error: float) -> bool:
        """Tell whether an error is as small as what rounding does; what is not a number is not."""
        return error <= self.band


def list_furthest(errors_of_runs: Iterable[Sequence[float]]) -> List[float]:
    """Return how far the furthest of some runs has been up to each step; what is not finite is left out.

    >>> list_furthest([[0.0, 3.0, 1.0], [1.0, 2.0, 4.0]])
    [1.0, 3.0, 4.0]
    """
    steps = zip(*errors_of_runs)
    return list(itertools.accumulate((max(filter(math.isfinite, step), default=0.0) for step in steps), max))
