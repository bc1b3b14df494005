"""The ways to run a step that are worth trying, from the simplest to the boldest, and the choice among measured ones.

The fastest is taken, and of equally fast ones the simplest. Processor time decides, as long as the clock does not
contradict.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, List, Mapping

from ...capture import StepGraph
from ...support.interleaved import Interval, Timing, ratio
from .. import engine_names
from ..calls.executable import BuildRequest, Choice
from ..contract.choices import choose_fewer_threads, list_layouts, list_updates
from ..contract.engine import replays_most
from ..replay.batched_micro_batches import choose_number_at_once, may_run_at_once
from .predictions import LEAST_GAIN

__all__ = ["PLAIN", "beats", "choose", "compare_times", "is_settled", "list_candidates", "list_tuned_engines"]

_logger = logging.getLogger("porting")

PLAIN = Choice()
"""What everything is compared with: the step replayed as eager PyTorch would run it."""

# What is faster by so much in each of so many rounds is faster.
_CLEAR_GAINS = {2: 1.3, 3: 1.15, 5: LEAST_GAIN}


def list_tuned_engines() -> List[str]:
    """Return the engines that tuning tries beside replay: this package's, and all of other packages."""
    return [name for name in engine_names() if name != PLAIN.engine]


def list_candidates(graph: StepGraph, request: BuildRequest, *, engines: Mapping[str, Any]) -> List[Choice]:
    """Return the choices of `graph` that are worth measuring, the simpler ones first; plain replay is the first.

    `engines` are those to try beside replay, by name. What replays most of a step is simpler than other engines.
    """
    threads, updates = choose_fewer_threads(graph), list_updates(request)
    found = [PLAIN, replace(PLAIN, num_threads=threads)] if threads else [PLAIN]
    # These cost no compilation, only a few calls of measuring.
    of_replay = [
        replace(PLAIN, channels_last=layout, fused_update=fused) for layout in list_layouts(graph) for fused in updates
    ]
    found += of_replay[1:]
    found += [replace(PLAIN, micro_batches_at_once=number) for number in _choose_numbers_at_once(graph, request)]
    for name, engine in sorted(engines.items(), key=lambda named: not replays_most(named[1])):
        found += _list_choices(name, engine, graph, request)
    return list(dict.fromkeys(found))


def _list_choices(name: str, engine: object, graph: StepGraph, request: BuildRequest) -> List[Choice]:
    """Return the choices that an engine offers; one that lists none has a single one."""
    if not hasattr(engine, "list_choices"):
        return [Choice(name)]
    try:
        return [replace(choice, engine=name) for choice in engine.list_choices(graph, request)]
    except Exception as error:  # others go on, and perhaps it can do the step all the same
        _logger.debug("the engine %s cannot say which choices it has", name, exc_info=error)
        return [Choice(name)]


def _choose_numbers_at_once(graph: StepGraph, request: BuildRequest) -> List[int]:
    """Return other numbers of micro-batches at once than the one taken in general: one by one, and all of a step."""
    of_step = request.plan.accumulation * request.plan.replicas
    of_run = of_step if request.groups else request.plan.num_micro_batches
    # replicas with weights of their own run one by one
    if of_run == 1 or request.replica_groups or not may_run_at_once(graph):
        return []
    usual = min(choose_number_at_once(graph), of_run)
    return [number for number in (1, of_run) if number != usual]


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(timings: Mapping[Choice, Timing]) -> Choice:
    """Return the choice to take; `timings` are of the same rounds, those of simpler choices first."""
    best, *others = timings
    for choice in others:
        is_faster = beats(timings[choice], timings[best])
        # What eager PyTorch at its best does is as simple as plain replay: a tie is enough for it.
        if not is_faster and (best, choice) == (PLAIN, replace(PLAIN, fused_update=True)):
            both = (compare_times(timings[best], timings[choice], by_processor=by) for by in (True, False))
            is_faster = all(times.median >= 1.0 for times in both)
        best = choice if is_faster else best
    return best


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
    is_no_loss = by_processor.high >= 1.0 or by_processor.median >= 1.0 / LEAST_GAIN
    return is_no_loss and _is_gain(by_clock)


def is_settled(timings: Mapping[Choice, Timing]) -> bool:
    """Tell whether more rounds would change the choice only by a miracle: the chosen one has won all of them.

    A few rounds are enough if it has won by far. `timings` are as for `choose`.
    """
    chosen = choose(timings)
    return all(_has_lost_each_round(other, timings[chosen]) for name, other in timings.items() if name != chosen)


def _has_lost_each_round(loser: Timing, winner: Timing) -> bool:
    pairs = list(zip(loser.cpu_seconds, winner.cpu_seconds))
    least = min(seconds / best for seconds, best in pairs)
    is_clear = any(len(pairs) >= rounds and least >= gain for rounds, gain in _CLEAR_GAINS.items())
    return is_clear and compare_times(loser, winner, by_processor=False).median >= 1.0


def compare_times(one: Timing, other: Timing, *, by_processor: bool) -> Interval:
    """Return how many times `other` `one` takes, over the rounds that both took part in."""
    # Hopeless candidates have run fewer rounds; rounds of other moments cannot be compared.
    num_rounds = min(len(one.wall_seconds), len(other.wall_seconds))
    first, second = (Timing(it.wall_seconds[:num_rounds], it.cpu_seconds[:num_rounds]) for it in (one, other))
    return ratio(first, second, by_processor=by_processor)


def _is_gain(times: Interval) -> bool:
    return times.median >= LEAST_GAIN and times.low > 1.0
