"""The material of the programs of one request: tensors without values, and the graphs traced so far."""

from __future__ import annotations

from typing import Dict, Sequence

import torch

from ...capture import StepGraph
from ...capture.graph_flow import constant_outputs
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest
from ..calls.group_settings import GroupSettings
from ..contract.failures import NotCompilable
from ..replay.batched_micro_batches import choose_number_at_once, may_run_at_once
from ..replay.graph_function import GraphFunction
from ..replay.wide_operators import find_wide_call
from ..update.traced_updates import describe_update
from ..update.updates import ensure_slots, find_optimizer_family, has_fused_arithmetic, list_slots
from .call_layout import GroupLayout, name_argument
from .program_updates import UpdateWriter
from .programs import count_operators
from .step_tracing import TracedRun, remove_branches, trace_run
from .why_replay import NO_FUSED_KERNEL, TRAINS_NOTHING

__all__ = ["TracedStep"]


class TracedStep:
    """A graph with the optimizer of a request; everything but its construction happens within `make_fake_tensors`."""

    def __init__(self, graph: StepGraph, request: BuildRequest) -> None:
        """Generate the function of `graph`."""
        self.graph = graph
        self.plan = request.plan
        self.constant_outputs = constant_outputs(graph)
        values = (node.meta.get("val") for node in graph.graph.nodes)
        self.has_halves = any(getattr(value, "dtype", None) in (torch.float16, torch.bfloat16) for value in values)
        self.input_names = [name_argument("input", detail=str(index)) for index in range(len(graph.inputs))]
        # without an optimizer gradients lead to nothing
        self.trains = graph.has_loss and graph.loss_has_gradient and any(request.group_names)
        self._groups = tuple(zip(request.groups, request.group_names)) if self.trains else ()
        self._request = request
        self.fused_update = request.choice.fused_update
        self._function = GraphFunction(remove_branches(graph.graph), find_call=find_wide_call)
        self._runs: Dict[int, TracedRun] = {}

    def trace(self) -> None:
        """Find out how many micro-batches run at once, what their run is, and which parameters it trains.

        Raises NotCompilable for a graph that cannot be traced.
        """
        graph, plan, request = self.graph, self.plan, self._request
        # Made within the fake mode, it has shapes, strides and names, and no memory.
        self.state = DeviceState.for_graph(graph, replicas=plan.replicas, groups=request.replica_groups)
        self.constants = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) for v in graph.constant_values]
        self.rows = [torch.empty(info.shape, dtype=info.dtype) for info in graph.inputs]
        wanted = request.choice.micro_batches_at_once
        self.most_at_once = choose_number_at_once(graph) if wanted is None else max(1, wanted)
        if request.replica_groups or plan.num_slices == 1 or not may_run_at_once(graph):
            self.most_at_once = 1
        first = self._trace_first_run()
        self.patterns = first.patterns
        self.num_operators = count_operators(first.graph)
        self.layouts = tuple(self._lay_out_group(settings, names, first) for settings, names in self._groups)
        self.trains = any(layout.trained for layout in self.layouts)
        self.layouts = self.layouts if self.trains else ()
        if self.fused_update and not self.trains:
            raise NotCompilable(TRAINS_NOTHING)
        for settings, _names in self._groups if self.fused_update else ():
            if not has_fused_arithmetic(settings):
                raise NotCompilable(NO_FUSED_KERNEL.format(find_optimizer_family(settings)))
        self.update = UpdateWriter(() if self.fused_update else self.layouts, self.state)
        self.gradient_types = {
            name: self.state.parameters[name].dtype for layout in self.layouts for name in layout.trained
        }
        is_single = self.trains and self.layouts[0].structure["accum_type"] == "float32"
        if is_single and len(plan.steps[0]) > 1:
            halves = [name for name, dtype in self.gradient_types.items() if dtype == torch.float16]
            self.gradient_types.update(dict.fromkeys(halves, torch.float32))

    @property
    def has_own_buffers(self) -> bool:
        """Whether replicas have buffers of their own."""
        return bool(self.graph.mutated_buffers)

    def run(self, num_micro_batches: int) -> TracedRun:
        """Trace a run of `num_micro_batches` micro-batches, or return it if that has been done."""
        if num_micro_batches not in self._runs:
            micro_batches = () if num_micro_batches == 1 else (num_micro_batches,)
            rows = [
                torch.empty((*micro_batches, *row.shape), dtype=row.dtype) if row.dim() else row for row in self.rows
            ]
            parts, parameters = self.state.parts, self.state.parameters
            grouped = {name for _settings, names in self._groups for name in names if parameters[name].requires_grad}
            infos = enumerate(self.graph.parameters)
            self._runs[num_micro_batches] = trace_run(
                self.graph,
                self._function,
                [*self.state.list_arguments(0), *rows, *self.constants],
                trained=[index for index, info in infos if grouped.intersection(parts[info.name])],
                num_micro_batches=num_micro_batches,
                owns_gradients=self.fused_update,
            )
        return self._runs[num_micro_batches]

    def match_gradients(
        self, run: TracedRun, outputs: Sequence[torch.fx.Node], *, replica: int
    ) -> Dict[str, torch.fx.Node]:
        """Return the gradients among the outputs of a run, by the parts that the replica has of the parameters."""
        names = (self.graph.parameters[index].name for index in run.with_gradient)
        found = dict(zip((self.state.find_part(name, replica) for name in names), outputs[run.num_results :]))
        return {part: gradient for part, gradient in found.items() if part in self.gradient_types}

    def _trace_first_run(self) -> TracedRun:
        num_micro_batches = min(
            self.most_at_once, len(self.plan.steps[0]) if self.trains else self.plan.num_micro_batches
        )
        try:
            return self.run(num_micro_batches)
        except NotCompilable:
            if num_micro_batches == 1:
                raise
            self.most_at_once = 1  # an operator cannot be mapped over micro-batches
            return self.run(1)

    def _lay_out_group(self, settings: GroupSettings, names: Sequence[str], run: TracedRun) -> GroupLayout:
        infos, state = self.graph.parameters, self.state
        with_gradient = {part for index in run.with_gradient for part in state.parts[infos[index].name]}
        trained = tuple(name for name in names if name in with_gradient and state.parameters[name].requires_grad)
        ensure_slots(settings, trained, state.parameters, state.slots)
        # The counts stay on the host, which has to know them for the bias corrections.
        slots = tuple(name for name in list_slots(settings) if name != "Step")
        return GroupLayout(structure=describe_update(settings), names=tuple(names), trained=trained, slots=slots)
