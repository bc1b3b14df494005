"""List the ways to run a step that are worth trying, from the simplest to the boldest."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterator, List, Sequence

import torch

from ...capture import StepGraph
from ...capture.graph_flow import tensor_memory
from .. import ENGINES, engine_names
from ..calls.executable import BuildRequest, Variant
from ..replay.batched_micro_batches import may_run_at_once, micro_batches_at_once
from ..update.updates import has_fused_arithmetic, slot_names
from .memory_format import LayoutError, put_channels_last

__all__ = ["PLAIN", "list_candidates", "tuned_engines"]

PLAIN = Variant()
"""What everything is compared with: the step replayed as eager PyTorch would run it."""

# A step of so few bytes is done before a second thread has begun.
_TINY_BYTES = 1 << 20
# An unrolled program of more operators takes the compiler too long.
_MAX_OPERATORS = 2000
# A single step of more operators does, too.
_MAX_OPERATORS_OF_STEP = 3000
# The compiler spends more on the update of so many tensors than it can save there.
_MANY_TRAINED = 60


def tuned_engines() -> List[str]:
    """Return the compiling engines that tuning tries: this package's ahead-of-time one, and all of other packages."""
    return ["aot", *(name for name in engine_names() if name not in ENGINES)]


def list_candidates(graph: StepGraph, request: BuildRequest, *, engines: Sequence[str] = ()) -> List[Variant]:
    """Return the variants of `graph` that are worth measuring, the simpler ones first; plain replay is the first.

    `engines` are the compiled engines to try.
    """
    layouts = [False, True] if _has_other_layout(graph) else [False]
    threads = 1 if _is_tiny(graph) and torch.get_num_threads() > 1 else None
    found = [PLAIN, replace(PLAIN, num_threads=threads)] if threads else [PLAIN]
    # These cost no compilation, only a few calls of measuring.
    found += [variant for variant in _list_replay_variants(request, layouts) if variant not in found]
    found += [replace(PLAIN, micro_batches_at_once=number) for number in _choose_numbers_at_once(graph, request)]
    # a compiler that lays values out as it likes gains most from the layout that convolutions like
    for engine in engines:
        for fused in _choose_fused_updates(graph, request):
            found += [Variant(engine, channels_last=layout, fused_update=fused) for layout in reversed(layouts)]
        found += [Variant(engine, num_threads=threads)] if threads else []
        found += [Variant(engine, steps_per_run=n, num_threads=threads) for n in _choose_steps_per_run(graph, request)]
    return found


def _choose_fused_updates(graph: StepGraph, request: BuildRequest) -> List[bool]:
    """Return whether compiled programs leave the update to torch's fused kernels, what compiles sooner first."""
    num_trained = sum(map(len, request.group_names))
    if num_trained <= _MANY_TRAINED or not all(map(has_fused_arithmetic, request.groups)):
        return [False]
    return [True, False] if _estimate_operators(graph, request) <= _MAX_OPERATORS_OF_STEP else [True]


def _has_other_layout(graph: StepGraph) -> bool:
    try:
        put_channels_last(graph)
    except LayoutError:
        return False
    return True


def _list_replay_variants(request: BuildRequest, layouts: Sequence[bool]) -> Iterator[Variant]:
    can_fuse = any(map(has_fused_arithmetic, request.groups))
    for layout in layouts:
        yield replace(PLAIN, channels_last=layout)
        if can_fuse:
            yield replace(PLAIN, channels_last=layout, fused_update=True)


def _choose_numbers_at_once(graph: StepGraph, request: BuildRequest) -> List[int]:
    """Return other numbers of micro-batches at once than the one taken in general: one by one, and all of a step."""
    of_step = request.plan.accumulation * request.plan.replicas
    of_run = of_step if request.groups else request.plan.num_micro_batches
    # replicas with weights of their own run one by one
    if of_run == 1 or request.replica_groups or not may_run_at_once(graph):
        return []
    usual = min(micro_batches_at_once(graph), of_run)
    return [number for number in (1, of_run) if number != usual]


def _choose_steps_per_run(graph: StepGraph, request: BuildRequest) -> List[int]:
    """Return how many device iterations one program could hold besides a single one: as many as can be unrolled."""
    iterations = request.plan.iterations
    # A larger program saves the start of a run, microseconds, and costs the compiler seconds.
    most = max(1, _MAX_OPERATORS // max(1, _estimate_operators(graph, request)))
    found = max(number for number in range(1, min(most, iterations) + 1) if iterations % number == 0)
    return [found] if found > 1 else []


def _estimate_operators(graph: StepGraph, request: BuildRequest) -> int:
    """Return about how many operators the program of a whole step has."""
    # backward has about twice as many operators as forward, and the update a few for each tensor that it writes
    of_micro_batch = len(graph.operators) * (3 if graph.has_loss else 1)
    of_update = sum(
        len(names) * (4 + 4 * len(slot_names(settings))) for settings, names in zip(request.groups, request.group_names)
    )
    return of_micro_batch * request.plan.accumulation * request.plan.replicas + of_update


def _is_tiny(graph: StepGraph) -> bool:
    """Tell whether all values of a step together are so small that threads do not pay."""
    values = {tensor_memory(node): node.meta.get("val") for node in reversed(graph.graph.nodes)}
    tensors = [value for value in values.values() if isinstance(value, torch.Tensor)]
    return sum(value.numel() * value.element_size() for value in tensors) < _TINY_BYTES
