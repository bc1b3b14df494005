"""Programs written out: rows cut, runs of the graph, gradients added up, updates, results gathered."""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence, Tuple

import torch

from ..calls.call_plan import CallPlan, MicroBatch, OutputCollector, Runs
from .call_layout import argument_name, plan_facts
from .program_graph import ProgramGraph
from .programs import Program
from .step_tracing import TracedRun, trace
from .traced_step import TracedStep

__all__ = ["write_micro_batches", "write_steps", "write_update"]

aten = torch.ops.aten

HyperParameters = Mapping[Tuple[int, str], torch.fx.Node]
MicroBatches = Sequence[MicroBatch]

_HYPER_PARAMETERS = argument_name("hyper_parameters")


# -- whole steps -------------------------------------------------------------------------------------------------------


def write_steps(step: TracedStep, plan: CallPlan, steps: Runs) -> Program:
    """Write the program of a call of `plan`, whose steps consist of `steps` of micro-batches that run at once.

    `plan` has as many iterations as the program does at a time. The program returns the results combined; where it does
    not update, it is of one step, and the sums of its gradients follow.
    """
    windows = {name: _make_window(step, row, plan) for name, row in zip(step.input_names, step.rows)}
    arguments = {
        **_list_parts(step),
        **_list_buffers(step),
        **_list_slots(step),
        **_list_hyper_parameters(step, len(steps)),
        **_list_constants(step),
    }
    returned: List[torch.fx.Node] = []
    program = ProgramGraph({**arguments, **windows})
    collected = _Collected(plan, step)
    for number, runs in enumerate(steps):
        hyper_parameters = step.update.select_hyper_parameters(program, number)
        # In the order of replay, micro-batch by micro-batch, so that sums are rounded as its are.
        sums: Dict[str, torch.fx.Node] = {}
        for micro_batches in runs:
            replica, run = micro_batches[0].replica, step.run(len(micro_batches))
            rows = [
                _cut_rows(program, name, row, micro_batches, plan) for name, row in zip(step.input_names, step.rows)
            ]
            outputs = _inline(program, step, run, _name_state(step, replica), rows, hyper_parameters)
            collected.add(program, run, micro_batches, outputs)
            for part, gradient in step.match_gradients(run, outputs, replica=replica).items():
                # Converted before the first sum: half precision loses what several micro-batches add.
                gradient = _convert_gradient(program, step, part, gradient)
                sums[part] = program.call(aten.add.Tensor, sums[part], gradient) if part in sums else gradient
        if step.fused_update:
            returned = [sums[part] for layout in step.layouts for part in layout.trained]
        elif step.trains:
            step.update.write(program, sums, step.gradient_types, hyper_parameters)
    role = "forward" if not step.trains else "gradients" if step.fused_update else "step"
    return _finish(program, step, role, [*collected.combine(program), *returned])


def _make_window(step: TracedStep, row: torch.Tensor, plan: CallPlan) -> torch.Tensor:
    """Return what one run takes of an input, [row, ...]; with groups of several replicas [group, row, ...]."""
    if row.dim() == 0:
        return row
    num_rows = plan.num_slices * row.shape[0]
    if not _is_grouped(plan):
        return torch.empty((num_rows, *row.shape[1:]), dtype=row.dtype)
    num_rows //= _num_groups(plan)
    num_runs = step.plan.iterations // plan.iterations
    return torch.empty((_num_groups(plan), num_rows * num_runs, *row.shape[1:]), dtype=row.dtype)[:, :num_rows]


def _is_grouped(plan: CallPlan) -> bool:
    return bool(plan_facts(plan)["input_groups"])


def _num_groups(plan: CallPlan) -> int:
    return plan.input_groups.num_groups if plan.input_groups is not None else 1


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
    if not _is_grouped(plan) and positions == list(range(positions[0], positions[0] + len(micro_batches))):
        rows = _slice_rows(program, window, row, positions, plan)
        return program.call(aten.view.default, rows, [len(micro_batches), *row.shape])
    return program.call(aten.stack.default, [_slice_rows(program, window, row, [at], plan) for at in positions])


def _slice_rows(
    program: ProgramGraph, window: torch.fx.Node, row: torch.Tensor, positions: Sequence[int], plan: CallPlan
) -> torch.fx.Node:
    """Write the rows of micro-batches at consecutive `positions`, all of one group if there are groups."""
    num_slices, first = plan.num_slices, positions[0]
    if _is_grouped(plan):
        num_slices //= _num_groups(plan)
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
        self._wanted: List[Tuple[MicroBatch, List[torch.fx.Node]]] = []
        # Which results are wanted depends on those before; tensors without values play the call through.
        self._rehearsal = OutputCollector(plan, constant=step.constant_outputs)

    def add(
        self, program: ProgramGraph, run: TracedRun, micro_batches: MicroBatches, outputs: Sequence[torch.fx.Node]
    ) -> None:
        for index, micro_batch in enumerate(micro_batches):
            if self._rehearsal.wants(micro_batch):
                self._rehearsal.add(micro_batch, self._step.patterns)
                self._wanted.append((micro_batch, _select_results(program, run, index, outputs)))

    def combine(self, program: ProgramGraph) -> List[torch.fx.Node]:
        num_results = len(self._step.patterns)

        def combine(*results: torch.Tensor) -> Tuple[torch.Tensor, ...]:
            collector = OutputCollector(self._plan, constant=self._step.constant_outputs)
            for index, (micro_batch, _nodes) in enumerate(self._wanted):
                collector.add(micro_batch, results[index * num_results : (index + 1) * num_results])
            return tuple(collector.combine())

        patterns = [torch.empty_like(pattern) for _ in self._wanted for pattern in self._step.patterns]
        with torch.no_grad():
            # The collector of real calls is traced, so that a program cannot join results in another way.
            graph = trace(combine, patterns)
        return program.inline(graph, [node for _turn, nodes in self._wanted for node in nodes])


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
    arguments = {
        **{_name_own("parameter", name): state.parameters[parts[0]] for name, parts in state.parts.items()},
        **{_name_own("buffer", name): buffer for name, buffer in state.buffers[0].items()},
        **{
            _name_own("accumulator", name): _make_accumulator(step, parts[0])
            for name, parts in _find_trained_parts(step).items()
        },
        **_list_hyper_parameters(step, 1),
        **_list_constants(step),
    }
    windows = {
        name: row
        if row.dim() == 0
        else torch.empty((num_micro_batches * row.shape[0], *row.shape[1:]), dtype=row.dtype)
        for name, row in zip(step.input_names, step.rows)
    }
    program = ProgramGraph({**arguments, **windows})
    hyper_parameters = step.update.select_hyper_parameters(program, 0)
    rows = [
        program.call(aten.view.default, program.arguments[name], [num_micro_batches, *row.shape])
        if num_micro_batches > 1 and row.dim()
        else program.arguments[name]
        for name, row in zip(step.input_names, step.rows)
    ]
    own_state = [
        *(_name_own("parameter", name) for name in state.parts),
        *(_name_own("buffer", name) for name in state.buffers[0]),
    ]
    outputs = _inline(program, step, run, own_state, rows, hyper_parameters)
    names = {part: name for name, parts in state.parts.items() for part in parts}
    for part, gradient in step.match_gradients(run, outputs, replica=0).items():
        accumulator = program.arguments[_name_own("accumulator", names[part])]
        program.call(aten.add_.Tensor, accumulator, _convert_gradient(program, step, part, gradient))
    results = [node for index in range(num_micro_batches) for node in _select_results(program, run, index, outputs)]
    return _finish(program, step, "accumulate" if step.trains else "forward", results)


def write_update(step: TracedStep) -> Program:
    """Write the program that ends a step: it updates the weights by the accumulators and empties those."""
    accumulators = {
        argument_name("accumulator", name=part): _make_accumulator(step, part) for part in step.gradient_types
    }
    program = ProgramGraph(
        {**_list_parts(step), **_list_slots(step), **accumulators, **_list_hyper_parameters(step, 1)}
    )
    sums = {part: program.arguments[argument_name("accumulator", name=part)] for part in step.gradient_types}
    step.update.write(program, sums, step.gradient_types, step.update.select_hyper_parameters(program, 0))
    for accumulator in sums.values():
        # the next step adds to them
        program.call(aten.zero_.default, accumulator)
    return _finish(program, step, "update", [])


def _name_own(kind: str, name: str) -> str:
    return argument_name(kind, detail="own", name=name)


def _find_trained_parts(step: TracedStep) -> Dict[str, Tuple[str, ...]]:
    return {name: parts for name, parts in step.state.parts.items() if step.gradient_types.keys() & set(parts)}


def _make_accumulator(step: TracedStep, part: str) -> torch.Tensor:
    return torch.empty_like(step.state.parameters[part], dtype=step.gradient_types[part], requires_grad=False)


# -- what both have ----------------------------------------------------------------------------------------------------


def _inline(
    program: ProgramGraph,
    step: TracedStep,
    run: TracedRun,
    state: Sequence[str],
    rows: Sequence[torch.fx.Node],
    hyper_parameters: HyperParameters,
) -> List[torch.fx.Node]:
    """Write a run of the graph on the parameters and buffers called `state`; return its outputs."""
    constants = [program.arguments[name] for name in _list_constants(step)]
    # an argument, not a constant: the loss scaling may change from call to call
    seed = [hyper_parameters[-1, "loss_seed"]] if run.takes_seed else []
    return program.inline(run.graph, [*(program.arguments[name] for name in state), *rows, *constants, *seed])


def _name_state(step: TracedStep, replica: int) -> List[str]:
    copy = replica if step.has_own_buffers else 0
    return [
        *(argument_name("parameter", name=step.state.part(name, replica)) for name in step.state.parts),
        *(argument_name("buffer", detail=str(copy), name=name) for name in step.state.buffers[0]),
    ]


def _convert_gradient(program: ProgramGraph, step: TracedStep, part: str, gradient: torch.fx.Node) -> torch.fx.Node:
    """Write a gradient in the type in which those of several micro-batches add up."""
    dtype = step.gradient_types[part]
    if dtype == step.state.parameters[part].dtype:
        return gradient
    return program.call(aten._to_copy.default, gradient, dtype=dtype)


def _list_parts(step: TracedStep) -> Dict[str, torch.Tensor]:
    return {argument_name("parameter", name=part): tensor.detach() for part, tensor in step.state.parameters.items()}


def _list_buffers(step: TracedStep) -> Dict[str, torch.Tensor]:
    copies = step.state.buffers if step.has_own_buffers else step.state.buffers[:1]
    return {
        argument_name("buffer", detail=str(copy), name=name): tensor
        for copy, buffers in enumerate(copies)
        for name, tensor in buffers.items()
    }


def _list_slots(step: TracedStep) -> Dict[str, torch.Tensor]:
    return {
        argument_name("slot", detail=slot, name=part): step.state.slots[part][slot]
        for layout in step.layouts
        for part in layout.trained
        for slot in layout.slots
    }


def _list_hyper_parameters(step: TracedStep, num_steps: int) -> Dict[str, torch.Tensor]:
    return {_HYPER_PARAMETERS: torch.empty((num_steps, step.update.num_hyper_parameters), dtype=torch.float32)}


def _list_constants(step: TracedStep) -> Dict[str, torch.Tensor]:
    return {argument_name("constant", detail=str(index)): value for index, value in enumerate(step.constants)}


def _finish(program: ProgramGraph, step: TracedStep, role: str, results: Sequence[torch.fx.Node]) -> Program:
    return program.finish(role, results, has_halves=step.has_halves)
