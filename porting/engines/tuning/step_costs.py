"""The cost of a step by kinds of operators, as replay takes it on this machine."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.operator_schema import operator_name
from ...torch_insides.operators import LINEAR_BY_ONEDNN, OpOverload
from ..calls.executable import BuildRequest, make_empty_state
from ..calls.rehearsal import Rehearsal
from ..contract.step_cost import StepCost
from ..contract.trial import Trial
from ..recompute.flop_counts import count_node_flops
from ..replay.timed_replay import TimedSpan, time_operators

__all__ = ["measure_peak_flops", "measure_step_cost"]

# A neighbour that takes the processor away makes single operators slow; the shortest of a few runs is what they take.
_NUM_RUNS = 3
_MOST_SECONDS = 0.5
_PRODUCTS = frozenset("linear matmul mm addmm bmm baddbmm addbmm einsum mv addmv".split())
_LIBRARY = (
    "scaled_dot_product",
    "lstm",
    "gru",
    "rnn",
    "fft_",
    "linalg_",
    "sort",
    "topk",
    "cumsum",
    "grid_sampler",
)
# Smaller products are as long as the way to them, which a compiled program has not.
_LEAST_FLOPS = 1 << 21
_PEAK_SIZE = 384


def measure_step_cost(graph: StepGraph, request: BuildRequest, trial: Trial) -> StepCost:
    """Replay the call of `trial` a few times and return what the kinds of its operators take."""
    state = trial.prepare(make_empty_state(graph, request))
    names = [list(group) for group in trial.group_names]
    rehearsal = Rehearsal.of(graph, state, trial.inputs, trial.plan, groups=list(trial.groups), group_names=names)
    runs: List[Sequence[TimedSpan]] = []
    processor_seconds = []
    began = time.monotonic()
    for _run in range(_NUM_RUNS):
        copy, start = rehearsal.copy(), time.process_time()
        runs.append(time_operators(copy))
        processor_seconds.append(time.process_time() - start)
        if time.monotonic() - began > _MOST_SECONDS:
            break
    flops = sum(_count_flops(graph, lambda node: operator_name(node.target) in _PRODUCTS).values())
    seconds = _add_up_kinds(runs, most_seconds=min(processor_seconds), large_products=flops >= _LEAST_FLOPS)
    num_micro_batches = trial.plan.num_micro_batches
    return StepCost(
        **seconds,
        product_flops=flops * num_micro_batches * (3 if graph.has_loss else 1),
        peak_flops=measure_peak_flops() if seconds["products"] else 0.0,
        num_iterations=trial.plan.iterations,
        graph=graph.graph,
        convolution_flops=_count_flops(graph, lambda node: operator_name(node.target).startswith("conv")),
    )


def _add_up_kinds(
    runs: Sequence[Sequence[TimedSpan]], *, most_seconds: float, large_products: bool
) -> Dict[str, float]:
    """Add up the shortest times; all together take at most `most_seconds`, those of the processor.

    A pass as a whole is long enough to be interrupted in each run of a busy machine.
    """
    found = dict.fromkeys(("products", "convolutions", "cells", "library", "update"), 0.0)
    whole = 0.0
    # Two replays do the same operators in the same order.
    for spans in zip(*runs):
        name, seconds = spans[0].name, min(span.seconds for span in spans)
        if spans[0].is_phase:
            whole += seconds
            found["update"] += seconds if spans[0].phase == "update" else 0.0
        else:
            kind = _find_kind(name, large_products=large_products)
            if kind:
                found[kind] += seconds
    found["rest"] = max(0.0, min(whole, most_seconds) - sum(found.values()))
    return found


def _find_kind(name: str, *, large_products: bool) -> str:
    operator = name.partition(" ")[0].partition("::")[2] or name.partition(".")[2] or name
    operator = operator.partition(".")[0]
    if operator in _PRODUCTS:
        return "products" if large_products else ""
    if operator.startswith("conv"):
        return "convolutions"
    if operator == "lstm":
        return "cells"
    return "library" if operator.startswith(_LIBRARY) else ""


def _count_flops(graph: StepGraph, is_counted: Callable[[torch.fx.Node], bool]) -> Dict[torch.fx.Node, int]:
    """Count the operations of some operators in one forward pass."""
    # Counting runs the operator on tensors without values, 15 ms; most layers are like another one.
    known: Dict[Tuple[Any, ...], int] = {}
    found: Dict[torch.fx.Node, int] = {}
    for node in graph.graph.nodes:
        if isinstance(node.target, OpOverload) and is_counted(node):
            shapes = tuple(tuple(used.meta["val"].shape) for used in node.all_input_nodes)
            # of a convolution the stride counts as well
            kind = (node.target, *shapes, tuple(node.meta["val"].shape))
            if kind not in known:
                known[kind] = count_node_flops(node)
            found[node] = known[kind]
    return found


def measure_peak_flops() -> float:
    """Return the most floating-point operations per second of a product of single precision, by either library."""
    left = torch.ones(_PEAK_SIZE, _PEAK_SIZE)
    seconds = []
    multiply = [lambda: torch.mm(left, left)]
    if torch.backends.mkldnn.is_available() and LINEAR_BY_ONEDNN is not None:
        multiply.append(lambda: LINEAR_BY_ONEDNN(left, left, None, "none", [], ""))
    with torch.no_grad():
        for _round in range(5):
            for product in multiply:
                start = time.monotonic()
                product()
                seconds.append(time.monotonic() - start)
    # the first ones choose kernels
    return 2 * _PEAK_SIZE**3 / min(seconds)
