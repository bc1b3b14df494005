"""Contestants are measured in turns, no longer than it takes to see which one is the fastest."""

from __future__ import annotations

import functools
import math
import time
from typing import Callable, Dict, Mapping, Optional, Sequence

from ...support.interleaved import Timing, time_interleaved
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Choice, make_empty_state
from ..contract.failures import failure_reason
from ..contract.trial import Trial
from .candidates import PLAIN, is_settled
from .contestants import Contestant

__all__ = ["measure_contestants"]

# One call of a small step is too short to be timed, so that a turn repeats it.
_TURN_SECONDS = 0.005
# After these numbers of rounds it is seen whether there have to be more.
_ROUNDS = (2, 3, 5, 10, 15, 20, 25)
# so much slower in the first rounds that more of them cannot change the order
_HOPELESS = 1.5
# What a first call does more than others is nothing beside such a long one.
_LONG_CALL_SECONDS = 0.2


def measure_contestants(
    contestants: Sequence[Contestant],
    request: BuildRequest,
    trial: Trial,
    *,
    most_seconds: float,
    most_rounds: int = _ROUNDS[-1],
) -> None:
    """Time those that are still in, by turns, until it is settled which one is to be taken.

    Those that are far behind after a few rounds run no further. After `most_seconds` no round begins, but there are
    always a few.
    """
    began = time.perf_counter()
    calls = _make_calls(contestants, request, trial)
    repeats = _choose_repeats(calls)
    timings: Dict[Choice, Timing] = {}
    running: Mapping[Choice, Callable[[], None]] = calls
    for before, after in zip((0, *_ROUNDS), _ROUNDS):
        seconds_left = most_seconds - (time.perf_counter() - began)
        if before >= min(most_rounds, _ROUNDS[-1]) or (before and seconds_left <= 0.0):
            break
        rounds = min(after, most_rounds) - before
        later = time_interleaved(running, rounds=rounds, repeats=repeats, at_most_seconds=max(seconds_left, 0.0))
        timings.update({choice: _append_rounds(timings.get(choice), timing) for choice, timing in later.items()})
        are_in = {one.choice: timings[one.choice] for one in contestants if one.is_in}
        if is_settled(are_in):
            break
        best = min(timing.cpu.median for timing in are_in.values())
        running = {
            choice: calls[choice]
            for choice, timing in are_in.items()
            if choice == PLAIN or (choice in running and timing.cpu.low <= _HOPELESS * best)
        }
        if set(running) == {PLAIN}:
            break
    for contestant in contestants:
        contestant.timing = timings[contestant.choice] if contestant.is_in else None
        contestant.reference = timings[PLAIN]


def _make_calls(
    contestants: Sequence[Contestant], request: BuildRequest, trial: Trial
) -> Dict[Choice, Callable[[], None]]:
    """Return what runs one call of each."""
    # One state for all candidates of a layout: they train it further, and a step takes as long with any weights.
    states: Dict[bool, DeviceState] = {}
    calls: Dict[Choice, Callable[[], None]] = {}
    for contestant in contestants:
        layout = contestant.choice.channels_last
        if layout not in states:
            states[layout] = trial.prepare(make_empty_state(contestant.graph, request))
        calls[contestant.choice] = functools.partial(_run_call, trial, contestant, states[layout])
    return calls


def _choose_repeats(calls: Mapping[Choice, Callable[[], None]]) -> int:
    """Call each, so that all calls to come are alike; return how often a turn has to repeat it."""
    # The first call binds tensors, chooses kernels and fills caches, the second is like those to come.
    slowest = 0.0
    for call in calls.values():
        seconds = _time_call(call)
        slowest = max(slowest, seconds if seconds >= _LONG_CALL_SECONDS else _time_call(call))
    return max(1, math.ceil(_TURN_SECONDS / slowest)) if slowest else 1


def _time_call(call: Callable[[], None]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _append_rounds(first: Optional[Timing], later: Timing) -> Timing:
    if first is None:
        return later
    return Timing(first.wall_seconds + later.wall_seconds, first.cpu_seconds + later.cpu_seconds)


def _run_call(trial: Trial, contestant: Contestant, state: DeviceState) -> None:
    """Run one call of a contestant; one that fails is its problem, and then nothing runs any more."""
    if contestant.executable is not None:
        try:
            trial.run(contestant.executable, state)
        except Exception as error:
            if contestant.choice == PLAIN:
                raise
            # The others go on. A candidate that failed here has timings that say nothing.
            contestant.executable, contestant.problem = None, failure_reason(error)
