"""List the choices that the engine `aot` offers for whole steps, none of which takes the compiler too long."""

from __future__ import annotations

from typing import List

from ...capture import StepGraph
from ..calls.executable import BuildRequest, Choice
from ..contract.choices import choose_fewer_threads, list_layouts
from ..update.updates import has_fused_arithmetic, list_slots

__all__ = ["list_whole_steps"]

# An unrolled program of more operators takes the compiler too long.
_MAX_OPERATORS = 2000
# A single step of more operators does, too, where so much of it is the update.
_MAX_OPERATORS_OF_STEP, _LARGE_SHARE_OF_UPDATE = 3000, 0.2
# With so many steps a program saves nine tenths of what the most would save, and is compiled sooner.
_ENOUGH_STEPS = 10


def list_whole_steps(engine: str, graph: StepGraph, request: BuildRequest) -> List[Choice]:
    """Return the choices of the engine of this name, the most promising memory format first."""
    fused, threads = _leaves_update(graph, request), choose_fewer_threads(graph)
    # a compiler that lays values out as it likes gains most from the layout that convolutions like
    found = [Choice(engine, channels_last=last, fused_update=fused) for last in reversed(list_layouts(graph))]
    found += [Choice(engine, num_threads=threads)] if threads else []
    numbers = _choose_steps_per_run(graph, request)
    return found + [Choice(engine, steps_per_run=number, num_threads=threads) for number in numbers]


def _leaves_update(graph: StepGraph, request: BuildRequest) -> bool:
    """Tell whether compiled programs leave the update to torch's fused kernels, because it would make them too large.

    A program that updates was the faster one wherever both were compiled, by 3 to 20 %: it writes what is in the cache.
    """
    operators, of_update = _estimate_operators(graph, request), _estimate_update_operators(request)
    is_too_large = operators > _MAX_OPERATORS_OF_STEP and of_update > operators * _LARGE_SHARE_OF_UPDATE
    return is_too_large and all(map(has_fused_arithmetic, request.groups))


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
