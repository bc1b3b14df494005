"""The gain of compiling, predicted from what replay takes: a candidate that cannot win is not compiled.

A step's time is that of matrix products, of convolutions, of LSTMs that a compiled program writes out, of other
operators whose kernels it calls as well, of the update, and of the rest, which the compiler fuses. Only products and
convolutions, by other kernels, the update and the rest can become faster; LSTMs become slower. What one compiled
candidate takes, and how replay fares with the same choices, predicts the others. Seconds are those of one call; scores
are relative to plain replay's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Optional

from ...support.interleaved import Interval, Timing
from ..calls.executable import Variant

__all__ = ["LEAST_GAIN", "StepCost", "doubt", "explain_loss", "find_score", "predict", "relative_cost"]

LEAST_GAIN = 1.03
"""A gain below 3 % is within what two runs of the same program differ by."""

# Another library multiplies small matrices at most so much faster, and none faster than the best that was seen.
_LEAST_SHARE_OF_PRODUCTS = 0.4
# Winograd's algorithm needs 4 of 9 multiplications; what other kernels gain with each convolution is found out by
# measuring where programs are compiled.
_LEAST_SHARE_OF_CONVOLUTIONS, _USUAL_SHARE_OF_CONVOLUTIONS = 0.45, 0.7
# An LSTM that is written out reads its weights for each cell, and multiplies smaller matrices than torch's kernel.
_LEAST_SHARE_OF_CELLS, _USUAL_SHARE_OF_CELLS = 1.2, 1.35
# Fused loops without the way from operator to operator; what remains at least, and usually.
_LEAST_SHARE_OF_REST, _USUAL_SHARE_OF_REST = 0.15, 0.5
_LEAST_SHARE_OF_UPDATE = 0.5
# The start of a run of a program, by the clock, on a usual processor.
_RUN_SECONDS = 8e-6
# How far a prediction from another compiled candidate was off in the reports that were looked at: the memory format
# decides which kernels a convolution gets, in replay and in programs differently.
_DOUBT_OF_LAYOUT, _DOUBT_OF_THREADS = 1.2, 1.1


@dataclass(frozen=True)
class StepCost:
    """The seconds of a replayed call by kinds of operators, and the operations of its products.

    `products` and `library` are the seconds of matrix products and of other operators that a compiled program leaves to
    the same kernels, `convolutions` those of convolutions for which it may choose others, `cells` those of LSTMs that
    it writes out, cell by cell; `rest` includes the way between operators. `peak_flops` are the most operations per
    second that a product has on this machine, 0 where that is not known. `num_iterations` are the device iterations of
    the call.

    >>> cost = StepCost(products=0.0, library=0.9, update=0.0, rest=0.1)
    >>> round(cost.least_seconds, 3)
    0.915
    """

    products: float
    library: float
    update: float
    rest: float
    product_flops: int = 0
    peak_flops: float = 0.0
    num_iterations: int = 1
    convolutions: float = 0.0
    cells: float = 0.0

    @property
    def seconds(self) -> float:
        """The call as a whole."""
        return self.products + self.convolutions + self.cells + self.library + self.update + self.rest

    @property
    def least_seconds(self) -> float:
        """What no compiled program gets below."""
        return (
            self.library
            + self.convolutions * _LEAST_SHARE_OF_CONVOLUTIONS
            + self.cells * _LEAST_SHARE_OF_CELLS
            + self._least_of_products
            + self.update * _LEAST_SHARE_OF_UPDATE
            + self.rest * _LEAST_SHARE_OF_REST
        )

    @property
    def usual_seconds(self) -> float:
        """What a compiled program takes, about."""
        products = (self.products + self._least_of_products) / 2
        convolutions = self.convolutions * _USUAL_SHARE_OF_CONVOLUTIONS
        kernels = self.library + convolutions + self.cells * _USUAL_SHARE_OF_CELLS
        return kernels + products + self.update * 0.75 + self.rest * _USUAL_SHARE_OF_REST

    @property
    def _least_of_products(self) -> float:
        at_peak = self.product_flops / self.peak_flops if self.peak_flops else 0.0
        return min(self.products, max(at_peak, self.products * _LEAST_SHARE_OF_PRODUCTS))

    @property
    def most_gain(self) -> float:
        """How many times as fast as replay a compiled program can be at most."""
        return self.seconds / self.least_seconds if self.least_seconds else math.inf

    @property
    def usual_gain(self) -> float:
        """How many times as fast as replay a compiled program is, about."""
        return self.seconds / self.usual_seconds if self.usual_seconds else math.inf


def find_score(timing: Timing) -> float:
    """Return the time that predictions are about: between processor time and the clock, both of which decide.

    >>> find_score(Timing(wall_seconds=(4.0,), cpu_seconds=(1.0,)))
    2.0
    """
    return math.sqrt(timing.cpu.median * timing.wall.median)


def relative_cost(variant: Variant, replays: Mapping[Variant, float], cost: Optional[StepCost]) -> float:
    """Return what a compiled variant takes in comparison with others, as far as replay tells.

    `replays` are the scores of the replayed variants, plain replay among them.
    """
    plain = replays[Variant()]
    of_layout = [score for other, score in replays.items() if _has_choices(other, variant.channels_last, None)]
    of_threads = [score for other, score in replays.items() if _has_choices(other, False, variant.num_threads)]
    found = min(of_layout, default=plain) * (min(of_threads, default=plain) / plain if variant.num_threads else 1.0)
    if cost is not None:
        # of equally good ones, what is done in fewer runs
        runs = cost.num_iterations / variant.steps_per_run
        found *= (cost.usual_seconds + runs * _RUN_SECONDS) / cost.seconds
    return found


def _has_choices(variant: Variant, channels_last: bool, num_threads: Optional[int]) -> bool:
    is_usual = variant.micro_batches_at_once is None
    return is_usual and (variant.channels_last, variant.num_threads) == (channels_last, num_threads)


def doubt(one: Variant, other: Variant, cost: Optional[StepCost]) -> float:
    """Return by which factor a prediction of `other` from `one` may be wrong."""
    found = 1.0
    if one.channels_last != other.channels_last:
        found *= _DOUBT_OF_LAYOUT
    if one.num_threads != other.num_threads:
        found *= _DOUBT_OF_THREADS
    if one.fused_update != other.fused_update:
        # at most half of the update can be saved
        share = 1.0 if cost is None else cost.update / cost.usual_seconds
        found /= 1.0 - min(0.5, share * _LEAST_SHARE_OF_UPDATE)
    return found


def predict(
    variant: Variant, compiled: Mapping[Variant, float], replays: Mapping[Variant, float], cost: Optional[StepCost]
) -> Optional[Interval]:
    """Predict the score of a variant, from the compiled ones that have been measured, or from the cost of the step.

    The bounds say how far that may be wrong; None where nothing is known.
    """
    own = relative_cost(variant, replays, cost)
    found = []
    for other, score in compiled.items():
        if other.engine == variant.engine:
            expected, factor = score * own / relative_cost(other, replays, cost), doubt(other, variant, cost)
            found.append(Interval(expected, expected / factor, expected * factor))
    if found:
        # the one that is most like it knows best
        return min(found, key=lambda interval: interval.high / interval.low)
    if cost is None:
        return None
    best = min(replays.values())
    usual = best / cost.usual_gain
    return Interval(usual, best / cost.most_gain, max(best, usual) * _DOUBT_OF_LAYOUT)


def explain_loss(expected: Optional[Interval], best: float, *, is_first: bool) -> str:
    """Say why a candidate cannot be faster than the best one by as much as counts; empty if it can be.

    `best` is the score of the best one so far, and `is_first` tells that none is compiled yet.

    >>> explain_loss(Interval(2.0, 1.5, 2.5), 1.0, is_first=False)
    'expected to take 2.00 times as long as the best, at least 1.50'
    >>> explain_loss(Interval(2.0, 0.5, 2.5), 1.0, is_first=False)
    ''
    """
    if expected is None or expected.low * LEAST_GAIN < best:
        return ""
    if is_first:
        gain = f"{best / expected.low:.2f} times as fast as the best"
        return f"at most {gain}: most of the step is in kernels that it cannot make faster"
    return (
        f"expected to take {expected.median / best:.2f} times as long as the best, at least {expected.low / best:.2f}"
    )
