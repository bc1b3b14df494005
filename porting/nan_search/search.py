"""End a run at the first value of it that is not finite, and say where that was.

`NotFiniteSearch` is the watcher of a step that does it.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional, Sequence

from porting.observe.watcher import BackwardPass, ForwardResults, OperatorCall, StepState
from porting.structure import flatten_tensors
from porting.torch_insides.tensors import read_version

from .gradient_records import GradientRecords
from .not_finite import NotFinite
from .operator_records import OperatorRecords
from .update_records import UpdateRecords

__all__ = ["NotFiniteSearch"]


class _FoundError(Exception):
    """Ends the run: the fault is found."""

    def __init__(self, fault: NotFinite) -> None:
        super().__init__(fault)
        self.fault = fault


class NotFiniteSearch:
    """Watches a run: forward passes, each from its loss backwards, then gradients, then what an update makes.

    `groups` are the settings of the optimizer's parameter groups, `group_names` the parameters of each, and `state` is
    what there is before the run. Buffers of the names `known` are not finite already, which is not the run's fault. An
    output that is not finite counts where nothing else is wrong.
    """

    def __init__(
        self,
        groups: Sequence[Any],
        group_names: Sequence[Sequence[str]],
        state: StepState,
        *,
        known: Iterable[str] = (),
    ) -> None:
        """Begin before the first step."""
        self._updates = UpdateRecords(groups, group_names, parameters=state.parameters, slots=state.slots)
        self._known = frozenset(known)
        self._output_fault: Optional[NotFinite] = None
        self._step, self._micro_batch = 1, 0
        self._begin_micro_batch()

    def find(self, run: Callable[[], object]) -> Optional[NotFinite]:
        """Return the first value that `run`, which tells this watcher of all that it does, makes not finite."""
        try:
            run()
        except _FoundError as found:
            return found.fault
        return self._output_fault

    def run_operator(self, call: OperatorCall) -> Any:
        """Run an operator, and look at what goes in and comes out."""
        inputs = call.operands.name_inputs(call.args, call.kwargs)
        versions = [read_version(value.tensor) for value in inputs]
        ranges = self._operators.begin(inputs)
        returned = call.run()
        results = flatten_tensors(returned)
        named = [(call.result, tensor) for tensor in results]
        # BatchNorm writes its statistics without saying so
        named += [
            (value.name, value.tensor)
            for value, version in zip(inputs, versions)
            if value.kind == "buffer" or read_version(value.tensor) != version
        ]
        infinite = call.operands.names_infinity
        self._operators.end(call.operator, inputs, ranges, named, names_infinity=infinite)
        self._derivatives.take_over(call.operator, ranges, results)
        return returned

    def end_forward(self, results: ForwardResults) -> None:
        """End the run with what made the loss, or a buffer that the pass has written, not finite."""
        self._micro_batch += 1
        if results.loss is not None:
            self._end_with(self._operators.find("loss", results.loss))
        for name, buffer in results.buffers.items():
            if name not in self._known:
                self._end_with(self._operators.find(name, buffer))
        for index, output in enumerate(results.outputs):
            fault = self._operators.find(f"output {index}", output, allows_meant=True)
            if fault is not None and self._output_fault is None:
                self._output_fault = self._count_step(fault)
        if not results.has_backward:
            self._begin_micro_batch()

    def run_backward(self, backward: BackwardPass) -> None:
        """Run a backward pass, and end the run with what made a gradient not finite."""
        backward.run()
        for name, parameter in backward.parameters.items():
            self._end_with(self._derivatives.find(name, parameter))
            if parameter.grad is not None:
                self._updates.note_gradient(name, parameter.grad)
        self._begin_micro_batch()

    def end_update(self, state: StepState) -> None:
        """End the run with a weight, or state of the optimizer, that an update made not finite."""
        self._end_with(self._updates.end_update(state.parameters, state.slots))
        self._step, self._micro_batch = self._step + 1, 0

    def _begin_micro_batch(self) -> None:
        self._operators, self._derivatives = OperatorRecords(), GradientRecords()

    def _count_step(self, fault: NotFinite) -> NotFinite:
        return fault.replace(step=self._step, micro_batch=self._micro_batch)

    def _end_with(self, fault: Optional[NotFinite]) -> None:
        if fault is not None:
            raise _FoundError(self._count_step(fault))
