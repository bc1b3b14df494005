"""A captured step and a request as programs for a compiler: flat graphs of ATen operators, whole optimizer steps."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, List, Optional

import torch

from ...capture import StepGraph
from ..calls.executable import BuildRequest
from ..contract.failures import NotCompilable
from .call_layout import CallLayout, TensorSpec, describe_plan
from .index_bounds import list_index_bounds
from .program_writer import write_micro_batches, write_steps, write_update
from .programs import Program, Programs
from .step_tracing import make_fake_tensors
from .traced_step import TracedStep
from .why_replay import COMPUTES_NOTHING, why_not_compiled

__all__ = ["build_programs"]

# Compilers take about 10 ms for an operator; what is larger is done in several runs.
_MAX_OPERATORS = 4000
# Tracing patches torch for the whole process, and tuning compiles several candidates in threads.
_one_trace_at_a_time = threading.Lock()


def build_programs(graph: StepGraph, request: BuildRequest) -> Programs:
    """Trace the programs of `graph` for `request`; nothing real is computed.

    A program does `steps_per_run` optimizer steps of the request's choice, or the largest number below that divides
    the iterations of a call. Where a single step has too many operators to write out, there are programs for a run of
    micro-batches and for the update. With the choice's `fused_update` there are no programs of the update, and those
    of a step return or add up the gradients. Raises NotCompilable with the reason.
    """
    reason = why_not_compiled(graph, request)
    if reason:
        raise NotCompilable(reason)
    step = TracedStep(graph, request)
    with _one_trace_at_a_time, make_fake_tensors():
        step.trace()
        size = _choose_steps_per_run(step, wanted=max(1, request.choice.steps_per_run))
        if size is not None:
            results = {"all": "join", "every_n": "join", "sum": "sum"}.get(step.plan.output_mode, "last")
            return _lay_out_calls(step, [write_steps(step, size)], kind="steps", results=results, steps_per_run=size)
        at_once = max(size for size in _list_divisors(len(step.plan.steps[0])) if size <= step.most_at_once)
        programs = [write_micro_batches(step, at_once)]
        if step.trains and not step.fused_update:
            programs.append(write_update(step))
        kind = "micro-batches"
        return _lay_out_calls(step, programs, kind=kind, results=kind, micro_batches_at_once=at_once)


def _choose_steps_per_run(step: TracedStep, *, wanted: int) -> Optional[int]:
    """Return how many steps one program does; None where it cannot do even a single one."""
    plan = step.plan
    if not step.trains:
        wanted = max(wanted, step.most_at_once // len(plan.steps[0]))
    # the fused kernels run between two programs, so that a program ends with its step
    sizes = [1] if step.fused_update else _list_divisors(plan.iterations)
    # all runs have to return the results of the same of their micro-batches
    is_irregular = plan.output_mode == "every_n"
    possible = [
        size
        for size in sizes
        if not is_irregular or size == plan.iterations or size * plan.accumulation % plan.output_period == 0
    ]
    # What was asked for first, then smaller programs, then larger ones: a regular size may be found only there.
    larger = [size for size in possible if size > wanted]
    for size in [*(size for size in reversed(possible) if size <= wanted), *larger]:
        of_program = dataclasses.replace(plan, iterations=size)
        num_runs = sum(map(len, of_program.cut_into_runs(step.most_at_once, keeps_steps=step.trains)))
        total = num_runs * step.num_operators + size * step.update.num_operators
        if total <= _MAX_OPERATORS or num_runs == 1:
            return size
    return None


def _list_divisors(number: int) -> List[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


def _lay_out_calls(step: TracedStep, programs: List[Program], **facts: Any) -> Programs:
    """Describe the calls that `programs` do; `facts` are the fields of the layout that say in which runs."""
    graph, plan = step.graph, step.plan
    if not any(program.num_operators for program in programs):
        raise NotCompilable(COMPUTES_NOTHING)
    # the shapes of a whole call; those of the graph are a micro-batch's
    shapes = [(plan.num_slices * info.shape[0], *info.shape[1:]) if info.shape else () for info in graph.inputs]
    layout = CallLayout(
        trains=step.trains,
        plan=describe_plan(plan),
        arguments={program.role: program.arguments for program in programs},
        inputs=tuple(
            TensorSpec.of(torch.empty(shape, dtype=info.dtype), name=name)
            for name, shape, info in zip(step.input_names, shapes, graph.inputs)
        ),
        num_results=len(step.patterns),
        groups=step.layouts,
        is_random=graph.is_random,
        constant_outputs=step.constant_outputs,
        parts=step.state.parts,
        fused_update=step.fused_update,
        bounds=list_index_bounds(graph) if step.trains else (),
        **facts,
    )
    return Programs({program.role: program for program in programs}, layout)
