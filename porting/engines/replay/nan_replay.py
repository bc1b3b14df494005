"""The search for the first value that is not finite in a captured step: a rehearsal is replayed and looked at."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch

from ...capture import StepGraph
from ...nan_search import (
    GradientRecords,
    NotFinite,
    OperatorRecords,
    UpdateRecords,
    is_not_finite,
)
from ...torch_insides.tensors import read_version
from ..calls.call_plan import MicroBatch
from ..calls.device_state import DeviceState
from ..calls.rehearsal import Rehearsal
from .direct_calls import Call
from .operator_watch import OperandNames, describe_operator, list_leaves
from .replay import ReplayExecutable

__all__ = ["find_not_finite"]


def find_not_finite(rehearsal: Rehearsal) -> Optional[NotFinite]:
    """Replay the call and return the first value of it that is not finite, or None; the rehearsal is used up.

    Forward passes are looked at first, each from its loss backwards, then gradients, then what the update makes. An
    output that is not finite counts where nothing else is wrong.
    """
    search = _Search(rehearsal)
    executable = ReplayExecutable(rehearsal.graph, observer=search, watch_operator=search.watch_operator)
    try:
        executable.run(
            rehearsal.state,
            rehearsal.inputs,
            rehearsal.plan,
            groups=rehearsal.groups,
            group_names=rehearsal.group_names,
        )
    except _FoundError as found:
        return found.fault
    return search.output_fault


class _FoundError(Exception):
    """Ends the replay: the fault is found."""

    def __init__(self, fault: NotFinite) -> None:
        super().__init__(fault)
        self.fault = fault


class _Search:
    """Watches the operators, the backward passes and the updates of one replay."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.output_fault: Optional[NotFinite] = None
        self._graph: StepGraph = rehearsal.graph
        self._names = OperandNames(rehearsal.graph)
        self._is_forward = True
        self._step, self._micro_batch = 1, 0
        self._begin_micro_batch()
        state = rehearsal.state
        self._updates = UpdateRecords(
            rehearsal.groups, rehearsal.group_names, parameters=state.parameters, slots=state.slots
        )
        # what is so already is not the step's fault
        self._known_buffers = {name for name, buffer in state.buffers[0].items() if is_not_finite(buffer)}

    # -- forward -------------------------------------------------------------------------------------------------------

    def watch_operator(self, node: torch.fx.Node, call: Call) -> Callable[..., Any]:
        """Return a function that calls the operator and looks at what goes in and comes out."""
        operator, operands, function = describe_operator(node), self._names.of(call), call.function

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_forward:
                return function(*args, **kwargs)
            inputs = operands.pair(args, kwargs)
            versions = [read_version(value.tensor) for value in inputs]
            ranges = self._operators.begin(inputs)
            results = function(*args, **kwargs)
            tensors = [leaf for leaf in list_leaves(results) if isinstance(leaf, torch.Tensor)]
            named = [(node.name, tensor) for tensor in tensors]
            # BatchNorm writes its statistics without saying so
            named += [
                (value.name, value.tensor)
                for value, version in zip(inputs, versions)
                if value.kind == "buffer" or read_version(value.tensor) != version
            ]
            self._operators.end(operator, inputs, ranges, named, names_infinity=operands.names_infinity)
            self._derivatives.take_over(operator, ranges, tensors)
            return results

        return run

    def after_forward(self, results: Sequence[torch.Tensor], state: DeviceState, micro_batch: MicroBatch) -> None:
        """End the search with what made the loss, or a buffer that the pass has written, not finite."""
        self._micro_batch += 1
        graph = self._graph
        if graph.has_loss:
            self._end_with(self._operators.find("loss", results[-1]))
        for name in sorted(graph.mutated_buffers):
            if name not in self._known_buffers:
                self._end_with(self._operators.find(name, state.buffers[micro_batch.replica][name]))
        for index, result in enumerate(results[: len(graph.outputs)]):
            fault = self._operators.find(f"output {index}", result, allows_meant=True)
            if fault is not None and self.output_fault is None:
                self.output_fault = self._count_step(fault)
        if not (graph.has_loss and graph.loss_has_gradient):
            self._begin_micro_batch()

    def _begin_micro_batch(self) -> None:
        self._operators, self._derivatives = OperatorRecords(), GradientRecords()

    def _count_step(self, fault: NotFinite) -> NotFinite:
        return fault.replace(step=self._step, micro_batch=self._micro_batch)

    def _end_with(self, fault: Optional[NotFinite]) -> None:
        if fault is not None:
            raise _FoundError(self._count_step(fault))

    # -- backward ------------------------------------------------------------------------------------------------------

    def during_backward(self, backward: Callable[[], None], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Run the backward pass, and end the search with what made a gradient not finite."""
        self._is_forward = False
        try:
            backward()
        finally:
            self._is_forward = True
        for name, parameter in state.parameters.items():
            self._end_with(self._derivatives.find(name, parameter))
            if parameter.grad is not None:
                self._updates.note_gradient(name, parameter.grad)
        self._begin_micro_batch()

    # -- update --------------------------------------------------------------------------------------------------------

    def after_update(self, state: DeviceState) -> None:
        """End the search with a weight, or state of the optimizer, that an update made not finite."""
        self._end_with(self._updates.end_update(state.parameters, state.slots))
        self._step, self._micro_batch = self._step + 1, 0
