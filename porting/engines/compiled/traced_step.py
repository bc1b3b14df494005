"""The material of the programs of one request: tensors without values, and the graphs traced so far."""

from __future__ import annotations

from typing import Dict, List, Sequence

import torch

from ...capture import StepGraph
from ...capture.graph_flow import constant_outputs
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest
from ..replay.batched_micro_batches import may_run_at_once, micro_batches_at_once
from ..replay.graph_function import GraphFunction
from ..update.traced_updates import update_structure
from ..update.updates import ensure_slots, has_fused_arithmetic, optimizer_family, slot_names
from .call_layout import GroupLayout, argument_name
from .program_updates import UpdateWriter
from .programs import num_operators
from .step_tracing import TracedRun, trace_run, without_branches
from .why_replay import TRAINS_NOTHING, NotCompilable, why_update_is_not_fused

__all__ = ["TracedStep"]

_HALVES = (torch.float16, torch.bfloat16)


class TracedStep:
    """A graph with the optimizer of a request; everything but its construction happens within `fake_tensors`."""

    def __init__(self, graph: StepGraph, request: BuildRequest) -> None:
        """Generate the function of `graph`."""
        self.graph = graph
        self.plan = request.plan
        self.constant_outputs = constant_outputs(graph)
        self.has_halves = any(_is_half(node.meta.get("val")) for node in graph.graph.nodes)
        self.input_names = [argument_name("input", detail=str(index)) for index in range(len(graph.inputs))]
        # without an optimizer gradients lead to nothing
        self.trains = graph.has_loss and graph.loss_has_gradient and any(request.group_names)
        self._groups = tuple(zip(request.groups, request.group_names)) if self.trains else ()
        self._replica_groups = request.replica_groups
        self._micro_batches_at_once = request.variant.micro_batches_at_once
        self.fused_update = request.variant.fused_update
        self._function = GraphFunction(without_branches(graph.graph))
        # Traced once for each number of micro-batches; the last run of a step may have fewer.
        self._runs: Dict[int, TracedRun] = {}

    def trace(self) -> None:
        """Find out how many micro-batches run at once, what their run is, and which parameters it trains.

        Raises NotCompilable for a graph that cannot be traced.
        """
        graph, plan = self.graph, self.plan
        # Made within the fake mode, it has shapes, strides and names, and no memory.
        self.state = DeviceState.for_graph(graph, replicas=plan.replicas, groups=self._replica_groups)
        self.constants = [_make_like(value) for value in graph.constant_values]
        self.rows = [torch.empty(info.shape, dtype=info.dtype) for info in graph.inputs]
        self.most_at_once = self._choose_most_at_once()
        first = self._trace_first_run()
        self.patterns = first.patterns
        # what the size of programs is estimated by
        self.num_operators = num_operators(first.graph)
        self.layouts = tuple(self._lay_out_group(settings, names, first) for settings, names in self._groups)
        self.trains = any(layout.trained for layout in self.layouts)
        self.layouts = self.layouts if self.trains else ()
        if self.fused_update:
            self._require_fused_update()
        self.update = UpdateWriter(() if self.fused_update else self.layouts, self.state)
        self.gradient_types = self._choose_gradient_types()

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
            arguments = [*self.state.find_arguments(0), *rows, *self.constants]
            self._runs[num_micro_batches] = trace_run(
                self.graph,
                self._function,
                arguments,
                trained=self._find_trained(),
                num_micro_batches=num_micro_batches,
                owns_gradients=self.fused_update,
            )
        return self._runs[num_micro_batches]

    def match_gradients(
        self, run: TracedRun, outputs: Sequence[torch.fx.Node], *, replica: int
    ) -> Dict[str, torch.fx.Node]:
        """Return the gradients among the outputs of a run, by the parts that the replica has of the parameters."""
        names = (self.graph.parameters[index].name for index in run.with_gradient)
        found = dict(zip((self.state.part(name, replica) for name in names), outputs[run.num_results :]))
        return {part: gradient for part, gradient in found.items() if part in self.gradient_types}

    def _require_fused_update(self) -> None:
        if not self.trains:
            raise NotCompilable(TRAINS_NOTHING)
        for settings, _names in self._groups:
            if not has_fused_arithmetic(settings):
                raise NotCompilable(why_update_is_not_fused(optimizer_family(settings)))

    def _choose_most_at_once(self) -> int:
        if self._replica_groups or self.plan.num_slices == 1 or not may_run_at_once(self.graph):
            return 1
        return (
            micro_batches_at_once(self.graph)
            if self._micro_batches_at_once is None
            else max(1, self._micro_batches_at_once)
        )

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

    def _find_trained(self) -> List[int]:
        """Return the indices of the parameters that the optimizer has, in part at least."""
        parts, parameters = self.state.parts, self.state.parameters
        grouped = {name for _settings, names in self._groups for name in names if parameters[name].requires_grad}
        infos = enumerate(self.graph.parameters)
        return [index for index, info in infos if grouped.intersection(parts[info.name])]

    def _lay_out_group(self, settings: object, names: Sequence[str], run: TracedRun) -> GroupLayout:
        infos, state = self.graph.parameters, self.state
        with_gradient = {part for index in run.with_gradient for part in state.parts[infos[index].name]}
        trained = tuple(name for name in names if name in with_gradient and state.parameters[name].requires_grad)
        ensure_slots(settings, trained, state.parameters, state.slots)
        # The counts stay on the host, which has to know them for the bias corrections.
        slots = tuple(name for name in slot_names(settings) if name != "Step")
        return GroupLayout(structure=update_structure(settings), names=tuple(names), trained=trained, slots=slots)

    def _choose_gradient_types(self) -> Dict[str, torch.dtype]:
        """Return the types in which gradients add up over micro-batches, as the replay engine's do."""
        types = {name: self.state.parameters[name].dtype for layout in self.layouts for name in layout.trained}
        is_single = bool(self.layouts) and self.layouts[0].structure["accum_type"] == "float32"
        if is_single and len(self.plan.steps[0]) > 1:
            return {name: torch.float32 if dtype == torch.float16 else dtype for name, dtype in types.items()}
        return types


def _make_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)


def _is_half(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in _HALVES
