"""The gain of compiling, predicted from what replay takes: a candidate that cannot win is not compiled.

Engines forecast what a call takes, from the cost of the replayed step. What one compiled candidate takes, and how
replay fares with the same choice, predicts the others of its engine. Scores are relative to plain replay's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Mapping, Optional

from ...support.interleaved import Interval, Timing
from ..calls.executable import Choice
from ..contract.step_cost import StepCost

__all__ = ["LEAST_GAIN", "Forecast", "doubt", "explain_loss", "find_score", "predict", "relative_cost"]

LEAST_GAIN = 1.03
"""A gain below 3 % is within what two runs of the same program differ by."""

# How far a prediction from another compiled candidate was off in the reports that were looked at: the memory format
# decides which kernels a convolution gets, in replay and in programs differently.
_DOUBT_OF_LAYOUT, _DOUBT_OF_THREADS = 1.2, 1.1
# Another kind of update saves at most so much of it.
_MOST_GAIN_OF_UPDATE = 0.5


@dataclass(frozen=True)
class Forecast:
    """What an engine expects of a choice: `call` in shares of the replayed call, and the `update` in shares of it."""

    call: Interval
    update: float

    @classmethod
    def of(cls, seconds: Optional[Interval], cost: StepCost) -> Optional[Forecast]:
        """Return the forecast that is meant by the seconds of a call, beside replay's `cost`; None for nothing."""
        if seconds is None or not cost.seconds:
            return None
        shares = (value / cost.seconds for value in (seconds.median, seconds.low, seconds.high))
        return cls(Interval(*shares), cost.update / seconds.median)


def find_score(timing: Timing) -> float:
    """Return the time that predictions are about: between processor time and the clock, both of which decide.

    >>> find_score(Timing(wall_seconds=(4.0,), cpu_seconds=(1.0,)))
    2.0
    """
    return math.sqrt(timing.cpu.median * timing.wall.median)


def relative_cost(choice: Choice, replays: Mapping[Choice, float], forecast: Optional[Forecast]) -> float:
    """Return what a compiled choice takes in comparison with others, as far as replay and its engine tell.

    `replays` are the scores of the replayed choices, plain replay among them.
    """
    plain = replays[Choice()]
    of_layout = [score for other, score in replays.items() if _is_usual_with(other, choice.channels_last, None)]
    of_threads = [score for other, score in replays.items() if _is_usual_with(other, False, choice.num_threads)]
    found = min(of_layout, default=plain) * (min(of_threads, default=plain) / plain if choice.num_threads else 1.0)
    return found if forecast is None else found * forecast.call.median


def _is_usual_with(choice: Choice, channels_last: bool, num_threads: Optional[int]) -> bool:
    is_usual = choice.micro_batches_at_once is None
    return is_usual and (choice.channels_last, choice.num_threads) == (channels_last, num_threads)


def doubt(one: Choice, other: Choice, forecast: Optional[Forecast]) -> float:
    """Return by which factor a prediction of `other`, of which there is a `forecast`, from `one` may be wrong."""
    found = 1.0
    if one.channels_last != other.channels_last:
        found *= _DOUBT_OF_LAYOUT
    if one.num_threads != other.num_threads:
        found *= _DOUBT_OF_THREADS
    if one.fused_update != other.fused_update:
        share = 1.0 if forecast is None else forecast.update
        found /= 1.0 - min(0.5, share * _MOST_GAIN_OF_UPDATE)
    return found


def predict(
    choice: Choice,
    compiled: Mapping[Choice, float],
    replays: Mapping[Choice, float],
    forecasts: Mapping[Choice, Forecast],
) -> Optional[Interval]:
    """Predict the score of a choice, from the compiled ones that have been measured, or from its engine's forecast.

    The bounds say how far that may be wrong; None where nothing is known.
    """
    found = []
    for other, score in compiled.items():
        if other.engine == choice.engine:
            both = (forecasts.get(choice), forecasts.get(other))
            own, others = both if None not in both else (None, None)
            expected = score * relative_cost(choice, replays, own) / relative_cost(other, replays, others)
            factor = doubt(other, choice, own)
            found.append(Interval(expected, expected / factor, expected * factor))
    if found:
        # the one that is most like it knows best
        return min(found, key=lambda interval: interval.high / interval.low)
    forecast = forecasts.get(choice)
    if forecast is None:
        return None
    best = min(replays.values())
    return Interval(best * forecast.call.median, best * forecast.call.low, best * forecast.call.high)


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
