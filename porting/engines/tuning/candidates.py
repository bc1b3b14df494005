"""The ways to run a step that are worth trying, from the simplest to the boldest, and the choice among measured ones.

The fastest is taken, and of equally fast ones the simplest. Processor time decides, as long as the clock does not
contradict.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import List, Mapping, Sequence

import torch

from ...capture import StepGraph
from ...support.interleaved import Interval, Timing, ratio
from .. import ENGINES, engine_names
from ..calls.executable import BuildRequest, Variant
from ..calls.memory_format import LayoutError, put_channels_last
from ..recurrence.engine import find_recurrent_nodes
from ..replay.batched_micro_batches import choose_number_at_once, count_value_bytes, may_run_at_once
from ..update.updates import has_fused_arithmetic, list_slots
from .predictions import LEAST_GAIN

__all__ = ["PLAIN", "beats", "choose", "compare_times", "is_settled", "list_candidates", "list_tuned_engines"]

PLAIN = Variant()
"""What everything is compared with: the step replayed as eager PyTorch would run it."""

# A step of so few bytes is done before a second thread has begun.
_TINY_BYTES = 1 << 20
# An unrolled program of more operators takes the compiler too long.
_MAX_OPERATORS = 2000
# A single step of more operators does, too, where so much of it is the update.
_MAX_OPERATORS_OF_STEP, _LARGE_SHARE_OF_UPDATE = 3000, 0.2
# What is faster by so much in each of so many rounds is faster.
_CLEAR_GAINS = {2: 1.3, 3: 1.15, 5: LEAST_GAIN}
# With so many steps a program saves nine tenths of what the most would save, and is compiled sooner.
_ENOUGH_STEPS = 10


def list_tuned_engines() -> List[str]:
    """Return the compiling engines that tuning tries: this package's, and all of other packages."""
    return ["aot", "recurrence", *(name for name in engine_names() if name not in ENGINES)]


def list_candidates(graph: StepGraph, request: BuildRequest, *, engines: Sequence[str] = ()) -> List[Variant]:
    """Return the variants of `graph` that are worth measuring, the simpler ones first; plain replay is the first.

    `engines` are the compiled engines to try.
    """
    layouts = [False]
    with suppress(LayoutError):
        put_channels_last(graph)
        layouts.append(True)
    is_tiny = count_value_bytes(list(graph.graph.nodes)) < _TINY_BYTES
    threads = 1 if is_tiny and torch.get_num_threads() > 1 else None
    found = [PLAIN, replace(PLAIN, num_threads=threads)] if threads else [PLAIN]
    # These cost no compilation, only a few calls of measuring.
    updates = [False, True] if any(map(has_fused_arithmetic, request.groups)) else [False]
    of_replay = [replace(PLAIN, channels_last=layout, fused_update=fused) for layout in layouts for fused in updates]
    found += of_replay[1:]
    found += [replace(PLAIN, micro_batches_at_once=number) for number in _choose_numbers_at_once(graph, request)]
    # a compiler that lays values out as it likes gains most from the layout that convolutions like
    if "recurrence" in engines and find_recurrent_nodes(graph.graph):
        found += [Variant("recurrence", fused_update=fused) for fused in updates]
    for engine in (name for name in engines if name != "recurrence"):
        fused = _leaves_update(graph, request)
        found += [Variant(engine, channels_last=layout, fused_update=fused) for layout in reversed(layouts)]
        found += [Variant(engine, num_threads=threads)] if threads else []
        found += [Variant(engine, steps_per_run=n, num_threads=threads) for n in _choose_steps_per_run(graph, request)]
    return found


def _leaves_update(graph: StepGraph, request: BuildRequest) -> bool:
    """Tell whether compiled programs leave the update to torch's fused kernels, because it would make them too large.

    A program that updates was the faster one wherever both were compiled, by 3 to 20 %: it writes what is in the cache.
    """
    operators, of_update = _estimate_operators(graph, request), _estimate_update_operators(request)
    is_too_large = operators > _MAX_OPERATORS_OF_STEP and of_update > operators * _LARGE_SHARE_OF_UPDATE
    return is_too_large and all(map(has_fused_arithmetic, request.groups))


def _choose_numbers_at_once(graph: StepGraph, request: BuildRequest) -> List[int]:
    """Return other numbers of micro-batches at once than the one taken in general: one by one, and all of a step."""
    of_step = request.plan.accumulation * request.plan.replicas
    of_run = of_step if request.groups else request.plan.num_micro_batches
    # replicas with weights of their own run one by one
    if of_run == 1 or request.replica_groups or not may_run_at_once(graph):
        return []
    usual = min(choose_number_at_once(graph), of_run)
    return [number for number in (1, of_run) if number != usual]


def _choose_steps_per_run(graph: StepGraph, request: BuildRequest) -> List[int]:
    """Return how many device iterations one program could hold besides a single one, if any can be unrolled."""
    iterations = request.plan.iterations
    # A larger program saves the start of a run, microseconds, and costs the compiler seconds.
    most = max(1, _MAX_OPERATORS // max(1, _estimate_operators(graph, request)))
    possible = [number for number in range(2, min(most, iterations) + 1) if iterations % number == 0]
    few = [number for number in possible if number <= _ENOUGH_STEPS]
    return few[-1:] or possible[:1]


def _estimate_operators(graph: StepGraph, request: BuildRequest) -> int:
    """Return about how many operators the program of a whole step has."""
    # backward has about twice as many operators as forward, and the update a few for each tensor that it writes
    of_micro_batch = len(graph.operators) * (3 if graph.has_loss else 1)
    return of_micro_batch * request.plan.accumulation * request.plan.replicas + _estimate_update_operators(request)


def _estimate_update_operators(request: BuildRequest) -> int:
    groups = zip(request.groups, request.group_names)
    return sum(len(names) * (4 + 4 * len(list_slots(settings))) for settings, names in groups)


# -- the choice --------------------------------------------------------------------------------------------------------


def choose(timings: Mapping[Variant, Timing]) -> Variant:
    """Return the variant to take; `timings` are of the same rounds, those of simpler variants first."""
    best, *others = timings
    for variant in others:
        is_faster = beats(timings[variant], timings[best])
        # What eager PyTorch at its best does is as simple as plain replay: a tie is enough for it.
        if not is_faster and (best, variant) == (PLAIN, replace(PLAIN, fused_update=True)):
            both = (compare_times(timings[best], timings[variant], by_processor=by) for by in (True, False))
            is_faster = all(times.median >= 1.0 for times in both)
        best = variant if is_faster else best
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


def is_settled(timings: Mapping[Variant, Timing]) -> bool:
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
