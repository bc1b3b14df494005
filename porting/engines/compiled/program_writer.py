"""Write out what a program does: rows cut, runs of the graph, gradients added up, updates and results."""

from __future__ import annotations

import dataclasses
from typing import Dict, List, Mapping, Sequence, Tuple

import torch

from ...torch_insides.operators import TO_COPY
from ..calls.call_plan import CallPlan, MicroBatch, OutputCollector
from .call_layout import find_num_blocks, name_argument
from .programs import Program, ProgramGraph
from .step_tracing import TracedRun, trace
from .traced_step import TracedStep

__all__ = ["write_micro_batches", "write_steps", "write_update"]

aten = torch.ops.aten

HyperParameters = Mapping[Tuple[int, str], torch.fx.Node]
MicroBatches = Sequence[MicroBatch]


# -- whole steps -------------------------------------------------------------------------------------------------------


def write_steps(step: TracedStep, num_steps: int) -> Program:
    """Write the program of `num_steps` device iterations; it returns their results combined.

    A program that trains and leaves the update to fused kernels is of one step, and returns the sums of its gradients
    after the results.
    """
    plan = dataclasses.replace(step.plan, iterations=num_steps)
    runs_of_steps = plan.cut_into_runs(step.most_at_once, keeps_steps=step.trains)
    copies = step.state.buffers if step.has_own_buffers else step.state.buffers[:1]
    buffers = {
        name_argument("buffer", detail=str(copy), name=name): tensor
        for copy, tensors in enumerate(copies)
        for name, tensor in tensors.items()
    }
    windows = {name: _make_window(step, row, plan) for name, row in zip(step.input_names, step.rows)}
    program = ProgramGraph({**_collect_updated(step), **buffers, **_collect_plain(step, len(runs_of_steps)), **windows})
    collected = _Collected(plan, step)
    sums: Dict[str, torch.fx.Node] = {}
    for number, runs in enumerate(runs_of_steps):
        hyper_parameters = step.update.select_hyper_parameters(program, number)
        # In the order of replay, micro-batch by micro-batch, so that sums are rounded as its are.
        sums = {}
        for micro_batches in runs:
            replica, run = micro_batches[0].replica, step.run(len(micro_batches))
            copy = str(replica if step.has_own_buffers else 0)
            state = [
                *(name_argument("parameter", name=step.state.find_part(name, replica)) for name in step.state.parts),
                *(name_argument("buffer", detail=copy, name=name) for name in step.state.buffers[0]),
            ]
            rows = [
                _cut_rows(program, name, row, micro_batches, plan) for name, row in zip(step.input_names, step.rows)
            ]
            outputs = _inline_run(program, step, run, state, rows, hyper_parameters)
            collected.add(program, run, micro_batches, outputs)
            for part, gradient in step.match_gradients(run, outputs, replica=replica).items():
                # Converted before the first sum: half precision loses what several micro-batches add.
                gradient = _convert_gradient(program, step, part, gradient)
                sums[part] = program.call(aten.add.Tensor, sums[part], gradient) if part in sums else gradient
        if step.trains and not step.fused_update:
            step.update.write(program, sums, step.gradient_types, hyper_parameters)
    results = collected.combine(program)
    if step.fused_update:
        results += [sums[part] for layout in step.layouts for part in layout.trained]
    role = "forward" if not step.trains else "gradients" if step.fused_update else "step"
    return program.finish(role, results, has_halves=step.has_halves)


def _make_window(step: TracedStep, row: torch.Tensor, plan: CallPlan) -> torch.Tensor:
    """Return what one run takes of an input, [row, ...]; with groups of several replicas [group, row, ...]."""
    if row.dim() == 0:
        return row
    num_rows, num_blocks = plan.num_slices * row.shape[0], find_num_blocks(plan)
    if not num_blocks:
        return torch.empty((num_rows, *row.shape[1:]), dtype=row.dtype)
    num_rows //= num_blocks
    num_runs = step.plan.iterations // plan.iterations
    return torch.empty((num_blocks, num_rows * num_runs, *row.shape[1:]), dtype=row.dtype)[:, :num_rows]


def _cut_rows(
    program: ProgramGraph, name: str, row: torch.Tensor, micro_batches: MicroBatches, plan: CallPlan
) -> torch.fx.Node:
    """Write the rows of `micro_batches`, [row, ...] for one and [micro-batch, row, ...] for several."""
    window = program.arguments[name]
    if row.dim() == 0:
        return window
    positions = [micro_batch.position for micro_batch in micro_batches]
    if len(micro_batches) == 1:
        return _slice_rows(program, window, row, positions, plan)
    if not find_num_blocks(plan) and positions == list(range(positions[0], positions[0] + len(micro_batches))):
        rows = _slice_rows(program, window, row, positions, plan)
        return program.call(aten.view.default, rows, [len(micro_batches), *row.shape])
    return program.call(aten.stack.default, [_slice_rows(program, window, row, [at], plan) for at in positions])


def _slice_rows(
    program: ProgramGraph, window: torch.fx.Node, row: torch.Tensor, positions: Sequence[int], plan: CallPlan
) -> torch.fx.Node:
    """Write the rows of micro-batches at consecutive `positions`, all of one group if there are groups."""
    num_slices, first, num_blocks = plan.num_slices, positions[0], find_num_blocks(plan)
    if num_blocks:
        num_slices //= num_blocks
        window = program.call(aten.select.int, window, 0, first // num_slices)
        first %= num_slices
    if len(positions) == num_slices:
        return window
    num_rows = row.shape[0]
    return program.call(aten.slice.Tensor, window, 0, first * num_rows, (first + len(positions)) * num_rows)


class _Collected:
    """The results of a program's micro-batches, gathered as the call's would be if it consisted of them alone."""

    def __init__(self, plan: CallPlan, step: TracedStep) -> None:
        self._plan = plan
        self._step = step
        self._wanted: List[MicroBatch] = []
        self._nodes: List[torch.fx.Node] = []
        # Which results are wanted depends on those before; tensors without values play the call through.
        self._rehearsal = OutputCollector(plan, constant=step.constant_outputs)

    def add(
        self, program: ProgramGraph, run: TracedRun, micro_batches: MicroBatches, outputs: Sequence[torch.fx.Node]
    ) -> None:
        for index, micro_batch in enumerate(micro_batches):
            if self._rehearsal.wants(micro_batch):
                self._rehearsal.add(micro_batch, self._step.patterns)
                self._wanted.append(micro_batch)
                self._nodes += _select_results(program, run, index, outputs)

    def combine(self, program: ProgramGraph) -> List[torch.fx.Node]:
        num_results = len(self._step.patterns)

        def combine(*results: torch.Tensor) -> Tuple[torch.Tensor, ...]:
            collector = OutputCollector(self._plan, constant=self._step.constant_outputs)
            for index, micro_batch in enumerate(self._wanted):
                collector.add(micro_batch, results[index * num_results : (index + 1) * num_results])
            return tuple(collector.combine())

        patterns = [torch.empty_like(pattern) for _ in self._wanted for pattern in self._step.patterns]
        with torch.no_grad():
            # The collector of real calls is traced, so that a program cannot join results in another way.
            return program.inline(trace(combine, patterns), self._nodes)


def _select_results(
    program: ProgramGraph, run: TracedRun, index: int, outputs: Sequence[torch.fx.Node]
) -> List[torch.fx.Node]:
    """Write the results of one micro-batch, which do not keep the memory of the others."""
    results = outputs[: run.num_results]
    if run.num_micro_batches == 1:
        return list(results)
    selected = [program.call(aten.select.int, result, 0, index) for result in results]
    # a view would keep the results of all micro-batches alive as long as the user keeps one
    return [program.call(aten.clone.default, result) for result in selected]


# -- single runs -------------------------------------------------------------------------------------------------------


def write_micro_batches(step: TracedStep, num_micro_batches: int) -> Program:
    """Write the program that runs `num_micro_batches` of one replica and returns the results of each.

    In training it adds the gradients to accumulators.
    """
    state, run = step.state, step.run(num_micro_batches)
    own_state = {
        **{_name_own("parameter", name): state.parameters[parts[0]] for name, parts in state.parts.items()},
        **{_name_own("buffer", name): buffer for name, buffer in state.buffers[0].items()},
    }
    names = {part: name for name, parts in state.parts.items() for part in parts}
    accumulators = {_name_own("accumulator", names[part]): like for part, like in _make_accumulators(step).items()}
    windows = {
        name: row
        if row.dim() == 0
        else torch.empty((num_micro_batches * row.shape[0], *row.shape[1:]), dtype=row.dtype)
        for name, row in zip(step.input_names, step.rows)
    }
    program = ProgramGraph({**own_state, **accumulators, **_collect_plain(step, 1), **windows})
    hyper_parameters = step.update.select_hyper_parameters(program, 0)
    rows = [
        program.call(aten.view.default, program.arguments[name], [num_micro_batches, *row.shape])
        if num_micro_batches > 1 and row.dim()
        else program.arguments[name]
        for name, row in zip(step.input_names, step.rows)
    ]
    outputs = _inline_run(program, step, run, list(own_state), rows, hyper_parameters)
    for part, gradient in step.match_gradients(run, outputs, replica=0).items():
        accumulator = program.arguments[_name_own("accumulator", names[part])]
        program.call(aten.add_.Tensor, accumulator, _convert_gradient(program, step, part, gradient))
    results = [node for index in range(num_micro_batches) for node in _select_results(program, run, index, outputs)]
    return program.finish("accumulate" if step.trains else "forward", results, has_halves=step.has_halves)


def write_update(step: TracedStep) -> Program:
    """Write the program that ends a step: it updates the weights by the accumulators and empties those."""
    accumulators = {name_argument("accumulator", name=part): like for part, like in _make_accumulators(step).items()}
    program = ProgramGraph({**_collect_updated(step), **accumulators, **_collect_plain(step, 1)})
    sums = {part: program.arguments[name] for part, name in zip(step.gradient_types, accumulators)}
    step.update.write(program, sums, step.gradient_types, step.update.select_hyper_parameters(program, 0))
    for accumulator in sums.values():
        program.call(aten.zero_.default, accumulator)
    return program.finish("update", [], has_halves=step.has_halves)


def _name_own(kind: str, name: str) -> str:
    return name_argument(kind, detail="own", name=name)


def _make_accumulators(step: TracedStep) -> Dict[str, torch.Tensor]:
    return {
        part: torch.empty_like(step.state.parameters[part], dtype=dtype, requires_grad=False)
        for part, dtype in step.gradient_types.items()
    }


# -- what both have ----------------------------------------------------------------------------------------------------


def _inline_run(
    program: ProgramGraph,
    step: TracedStep,
    run: TracedRun,
    state: Sequence[str],
    rows: Sequence[torch.fx.Node],
    hyper_parameters: HyperParameters,
) -> List[torch.fx.Node]:
    """Write a run of the graph on the parameters and buffers called `state`; return its outputs."""
    constants = [program.arguments[_name_constant(index)] for index in range(len(step.constants))]
    # an argument, not a constant: the loss scaling may change from call to call
    seed = [hyper_parameters[-1, "loss_seed"]] if run.takes_seed else []
    return program.inline(run.graph, [*(program.arguments[name] for name in state), *rows, *constants, *seed])


def _convert_gradient(program: ProgramGraph, step: TracedStep, part: str, gradient: torch.fx.Node) -> torch.fx.Node:
    """Write a gradient in the type in which those of several micro-batches add up."""
    dtype = step.gradient_types[part]
    if dtype == step.state.parameters[part].dtype:
        return gradient
    return program.call(TO_COPY, gradient, dtype=dtype)


def _collect_updated(step: TracedStep) -> Dict[str, torch.Tensor]:
    """Return the parts of parameters and their slots, by the names of arguments."""
    state = step.state
    slots = {
        name_argument("slot", detail=slot, name=part): state.slots[part][slot]
        for layout in step.layouts
        for part in layout.trained
        for slot in layout.slots
    }
    return {
        **{name_argument("parameter", name=part): tensor.detach() for part, tensor in state.parameters.items()},
        **slots,
    }


def _collect_plain(step: TracedStep, num_steps: int) -> Dict[str, torch.Tensor]:
    """Return what no program writes to: the hyper-parameters of `num_steps` steps, and the constants."""
    hyper_parameters = torch.empty((num_steps, step.update.num_hyper_parameters), dtype=torch.float32)
    constants = {_name_constant(index): value for index, value in enumerate(step.constants)}
    return {name_argument("hyper_parameters"): hyper_parameters, **constants}


def _name_constant(index: int) -> str:
    return name_argument("constant", detail=str(index))
