"""Choose among measured ways to run a step: the fastest, and of equally fast ones the simplest.

Processor time decides, as long as the clock does not contradict.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Mapping

from ...support.interleaved import Interval, Timing, ratio
from ..calls.executable import Variant
from .candidates import PLAIN

__all__ = ["beats", "choose", "compare_times"]

# A gain below 3 % is within what two runs of the same program differ by.
_LEAST_GAIN = 1.03


def choose(timings: Mapping[Variant, Timing]) -> Variant:
    """Return the variant to take; `timings` are of the same rounds, those of simpler variants first."""
    variants = list(timings)
    # Simpler variants come first and each of the others has to beat the best so far, so that a tie goes to the simpler
    # one.
    best = variants[0]
    for variant in variants[1:]:
        is_faster = beats(timings[variant], timings[best])
        if is_faster or (best, variant) == (PLAIN, _FUSED) and _is_no_slower(timings[variant], timings[best]):
            best = variant
    return best


# What eager PyTorch at its best does, and as simple as plain replay: a tie is enough for it.
_FUSED = replace(PLAIN, fused_update=True)


def _is_no_slower(one: Timing, other: Timing) -> bool:
    """Tell whether `one` takes less time by the clock and of processors in at least half of the rounds."""
    return all(compare_times(other, one, by_processor=by_processor).median >= 1.0 for by_processor in (True, False))


def beats(one: Timing, other: Timing) -> bool:
    """Tell whether `one` is faster than `other` for certain, and by at least 3 %.

    It has to take less processor time and, as far as can be told, no more by the clock; or equal processor time and
    less by the clock, which is how several threads at once show.
    """
    by_processor = compare_times(other, one, by_processor=True)
    by_clock = compare_times(other, one, by_processor=False)
    if _is_gain(by_processor):
        # The clock only has a veto: on a busy machine it tells less than the time of processors.
        return by_clock.high >= 1.0
    is_no_loss = by_processor.high >= 1.0 or by_processor.median >= 1.0 / _LEAST_GAIN
    return is_no_loss and _is_gain(by_clock)


def compare_times(one: Timing, other: Timing, *, by_processor: bool) -> Interval:
    """Return how many times `other` `one` takes, over the rounds that both took part in."""
    # Hopeless candidates have run fewer rounds; rounds of other moments cannot be compared.
    num_rounds = min(len(one.wall_seconds), len(other.wall_seconds))
    return ratio(_take_first_rounds(one, num_rounds), _take_first_rounds(other, num_rounds), by_processor=by_processor)


def _take_first_rounds(timing: Timing, number: int) -> Timing:
    return Timing(timing.wall_seconds[:number], timing.cpu_seconds[:number])


def _is_gain(times: Interval) -> bool:
    return times.median >= _LEAST_GAIN and times.low > 1.0
