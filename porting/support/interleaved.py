"""Compare speeds fairly: contestants run in turn, so that whatever else the machine does affects all of them alike.

Benchmarks and the tuner use it.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, TypeVar

import numpy as np
from tqdm import tqdm

__all__ = ["Interval", "Timing", "ratio", "run_interleaved", "time_interleaved"]

Name = TypeVar("Name")
Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Interval:
    """A median with bounds, whose meaning is that of the function that made them."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """The times of a contestant in each round: by the clock, and in processor time of all threads."""

    wall_seconds: Tuple[float, ...]
    cpu_seconds: Tuple[float, ...]

    @property
    def wall(self) -> Interval:
        """Median and quartiles of the clock's seconds.

        >>> Timing(wall_seconds=(1.0, 2.0, 3.0, 4.0, 9.0), cpu_seconds=()).wall
        Interval(median=3.0, low=2.0, high=4.0)
        """
        return _find_quartiles(self.wall_seconds)

    @property
    def cpu(self) -> Interval:
        """Median and quartiles of the processor's seconds."""
        return _find_quartiles(self.cpu_seconds)


def time_interleaved(
    contestants: Mapping[Name, Callable[[], Any]],
    *,
    rounds: int,
    repeats: int = 1,
    progress: str = "",
    at_most_seconds: Optional[float] = None,
) -> Dict[Name, Timing]:
    """Time the contestants alternately, `rounds` times each, and return their timings by name.

    A round calls each contestant `repeats` times; seconds are those of one call. The order changes with each round.
    Nothing is run beforehand: call each contestant once yourself if its first call does more than the others.
    `progress` is the text beside a progress bar, which only terminals get. After `at_most_seconds` no round begins, but
    there is always one.
    """
    sides = {name: functools.partial(_time_repeats, call, repeats) for name, call in contestants.items()}
    with tqdm(total=rounds, desc=progress, leave=False, disable=None if progress else True) as bar:
        runs = run_interleaved(
            sides, rounds=rounds, at_most_seconds=at_most_seconds, after_round=lambda _number: bar.update()
        )
    return {
        name: Timing(tuple(wall for wall, _cpu in taken), tuple(cpu for _wall, cpu in taken))
        for name, taken in runs.items()
    }


def run_interleaved(
    sides: Mapping[Name, Callable[[], Taken]],
    *,
    rounds: int,
    after_round: Callable[[int], Any] = lambda _number: None,
    at_most_seconds: Optional[float] = None,
) -> Dict[Name, List[Taken]]:
    """Run every side once in each round, and return the results of its runs.

    Who begins changes from round to round. `after_round` is called with the number of rounds done. After
    `at_most_seconds` no round begins, but there is always one.

    >>> run_interleaved({"a": lambda: 1, "b": lambda: 2}, rounds=2)
    {'a': [1, 1], 'b': [2, 2]}
    """
    taken: Dict[Name, List[Taken]] = {name: [] for name in sides}
    order = list(sides)
    began = time.perf_counter()
    for number in range(rounds):
        for name in order:
            taken[name].append(sides[name]())
        order.reverse()
        after_round(number + 1)
        if at_most_seconds is not None and time.perf_counter() - began >= at_most_seconds:
            break
    return taken


def ratio(
    numerator: Timing,
    denominator: Timing,
    *,
    confidence: float = 0.95,
    num_resamples: int = 2000,
    by_processor: bool = False,
) -> Interval:
    """Return the median over the rounds of one contestant's time over another's, from the same run.

    It is time by the clock, or with `by_processor` processor time.

    The bounds are a bootstrap interval: percentiles of the medians of `num_resamples` random choices of rounds (with
    replacement, from a fixed seed), which cover the true median with about the given confidence.

    >>> ratio(Timing((2.0, 4.0, 6.0), ()), Timing((1.0, 2.0, 3.0), ()))
    Interval(median=2.0, low=2.0, high=2.0)
    """
    above, below = (
        np.asarray(timing.cpu_seconds if by_processor else timing.wall_seconds) for timing in (numerator, denominator)
    )
    by_round = above / below
    random = np.random.default_rng(0)
    medians = np.median(random.choice(by_round, size=(num_resamples, by_round.size)), axis=1)
    low, high = np.quantile(medians, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(np.median(by_round)), float(low), float(high))


def _time_repeats(call: Callable[[], Any], repeats: int) -> Tuple[float, float]:
    """Return the seconds of one call by the clock and by the processor, the mean of `repeats`."""
    wall_start, cpu_start = time.perf_counter(), time.process_time()
    for _repeat in range(repeats):
        call()
    cpu = (time.process_time() - cpu_start) / repeats
    return (time.perf_counter() - wall_start) / repeats, cpu


def _find_quartiles(seconds: Tuple[float, ...]) -> Interval:
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75]).tolist()
    return Interval(median, low, high)
