"""This module times the calls of several sides that take turns, and sums up their times.

Turns spread the load of the machine over all sides, so that the ratio of two sides is fair.
"""

from __future__ import annotations

import functools
import math
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from porting.support.interleaved import Interval, Timing, ratio, run_interleaved

__all__ = ["Moments", "Ratios", "Spread", "Turn", "Turns", "divide_times", "take_calls", "time_calls", "time_sides"]

_SETTLING_SECONDS = 0.03


@dataclass(frozen=True)
class Spread:
    """How seconds spread: the median, the quartiles, and what 95 % of them stay below."""

    median: float
    low: float
    high: float
    p95: float


class Turn(NamedTuple):
    """Seconds of each call of a turn by the clock, and processor seconds of a call."""

    call_seconds: Tuple[float, ...]
    cpu_seconds: float


@dataclass(frozen=True)
class Turns:
    """Seconds of each call in each round, and processor seconds of a call in each round."""

    call_seconds: Tuple[Tuple[float, ...], ...]
    cpu_seconds: Tuple[float, ...]

    def spread(self, *, steps_per_call: int = 1) -> Spread:
        """Spread of the seconds of a step over all calls of all rounds.

        >>> Turns(call_seconds=((1.0, 3.0), (2.0, 2.0)), cpu_seconds=(2.0, 2.0)).spread().median
        2.0
        """
        seconds = np.concatenate([np.asarray(turn) for turn in self.call_seconds]) / steps_per_call
        low, median, high, p95 = np.quantile(seconds, [0.25, 0.5, 0.75, 0.95]).tolist()
        return Spread(median, low, high, p95)

    @property
    def timing(self) -> Timing:
        """Median seconds of a call in each round, by the clock and in processor time."""
        return Timing(tuple(float(np.median(turn)) for turn in self.call_seconds), self.cpu_seconds)


@dataclass(frozen=True)
class Ratios:
    """Time of one side over that of the other: by the clock, in processor time, and that of every round."""

    wall: Interval
    cpu: Interval
    rounds: Tuple[float, ...]


def time_sides(
    sides: Mapping[str, Callable[[int], Turn]],
    *,
    rounds: int,
    calls_per_turn: int,
    after_round: Callable[[int], None] = lambda _number: None,
) -> Dict[str, Turns]:
    """Time `rounds` rounds in which each side takes a turn of `calls_per_turn` calls, in alternating order.

    `after_round` is called with the number of rounds that are done.
    """

    def settle_and_time(side: Callable[[int], Turn]) -> Turn:
        # the threads of the other side wait for more work by spinning: they get the time to give up
        time.sleep(_SETTLING_SECONDS)
        return side(calls_per_turn)

    turns = run_interleaved(
        {name: functools.partial(settle_and_time, side) for name, side in sides.items()},
        rounds=rounds,
        after_round=after_round,
    )
    return {name: Turns(*zip(*of_side)) for name, of_side in turns.items()}


def time_calls(call: Callable[[], Any], number: int) -> Turn:
    """Take a turn in this process.

    >>> len(time_calls(lambda: None, 3).call_seconds)
    3
    """
    seconds = []
    cpu_start = time.process_time()
    for _call in range(number):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return Turn(tuple(seconds), (time.process_time() - cpu_start) / number)


def divide_times(numerator: Turns, denominator: Turns) -> Ratios:
    """Compare two sides round by round, with 95 % bootstrap intervals of the median."""
    above, below = numerator.timing, denominator.timing
    by_round = tuple(one / other for one, other in zip(above.wall_seconds, below.wall_seconds))
    return Ratios(ratio(above, below), ratio(above, below, by_processor=True), by_round)


# -- calls from the first one on ---------------------------------------------------------------------------------------

# Looking takes microseconds: it must not be a part of what is measured.
_LOOK_SECONDS = 0.01


class Moments(NamedTuple):
    """Seconds from the beginning to the end of each call, and from which call on an engine ran them.

    An engine has its `name`, the `call` after which it was seen first, counted from 1, and the `seconds` to that call.
    """

    call_seconds: List[float]
    engines: List[Dict[str, Any]]


def take_calls(
    call: Callable[[], Any],
    *,
    began: float,
    num_calls: int,
    limit_seconds: Optional[float] = None,
    read_engine: Callable[[], str] = lambda: "",
) -> Moments:
    """Make `num_calls` calls, or stop once those after the first have taken `limit_seconds`.

    `began` is the moment of `time.perf_counter()` that counts as the beginning. `read_engine` names what runs the
    calls, nothing where that is not known; it is asked every now and then.

    >>> moments = take_calls(lambda: None, began=time.perf_counter(), num_calls=3, read_engine=lambda: "replay")
    >>> len(moments.call_seconds), [(engine["name"], engine["call"]) for engine in moments.engines]
    (3, [('replay', 1)])
    """
    limit = math.inf if limit_seconds is None else limit_seconds
    moments: List[float] = []
    engines: List[Dict[str, Any]] = []
    looked, known = -math.inf, ""
    while len(moments) < num_calls:
        call()
        moment = time.perf_counter() - began
        moments.append(moment)
        if moment - looked > _LOOK_SECONDS:
            looked, engine = moment, read_engine()
            if engine != known:
                engines.append({"name": engine, "call": len(moments), "seconds": moment})
                known = engine
        if moment - moments[0] > limit:
            break
    return Moments(moments, engines)
