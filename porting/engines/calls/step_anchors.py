"""Values of a training step that no operator of the forward graph has: gradients, updated weights, optimizer state."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Protocol, Sequence, Tuple

import torch

from .call_plan import CallPlan, MicroBatch, OutputCollector
from .device_state import DeviceState

__all__ = ["StepObserver", "StepValue", "StepWatcher"]


class StepWatcher(Protocol):
    """What the replay engine tells of the passes of each micro-batch, and of each update."""

    def after_forward(self, results: Sequence[torch.Tensor], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Look at the results of a micro-batch's forward pass: the outputs, then the loss if there is one."""

    def during_backward(self, backward: Callable[[], None], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Run the backward pass of a micro-batch."""

    def after_update(self, state: DeviceState) -> None:
        """Look at the state behind an optimizer step."""


class StepValue(NamedTuple):
    """What is wanted of a step.

    `kind` is "gradient" (of one micro-batch, times the loss scaling), "weight" (after the update), "slot" (the
    optimizer's state called `slot`, after the update); without a `parameter`, "loss_scaling" (of the step) or
    "loss_scaling_factor" (for the next step, where the loss scaling adapts itself).
    """

    kind: str
    parameter: str = ""
    slot: str = ""


class StepObserver:
    """Reads `wanted` off the steps of a call; an engine tells it of each backward pass and of each update.

    Each micro-batch has a value: its own gradient, and what its step led to.
    """

    def __init__(self, wanted: Sequence[StepValue]) -> None:
        """Observe nothing before `begin`."""
        self.wanted = tuple(wanted)
        self.begin(CallPlan())

    def begin(self, plan: CallPlan) -> None:
        """Forget what was observed: a call of `plan` begins."""
        self._scale = plan.backward_scale
        self._collector = OutputCollector(plan)
        self._micro_batches: List[Tuple[MicroBatch, List[Optional[torch.Tensor]]]] = []

    def after_forward(self, results: Sequence[torch.Tensor], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Take nothing: all that is wanted arises later."""

    def during_backward(self, backward: Callable[[], None], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Run the backward pass of a micro-batch, keeping its gradients apart.

        They are taken as the loss alone makes them: the engine's have a factor for the mean over micro-batches too.
        """
        names = {value.parameter for value in self.wanted if value.kind == "gradient"}
        parameters = {name: state.parameters[state.find_part(name, micro_batch.replica)] for name in names}
        # Autograd adds to `.grad`. Taken away for this pass, it shows the gradient of this micro-batch alone.
        accumulated = {name: parameter.grad for name, parameter in parameters.items()}
        for name in accumulated:
            parameters[name].grad = None
        backward()
        own = {name: parameters[name].grad for name in accumulated}
        gradients = [None if value.kind != "gradient" else own[value.parameter] for value in self.wanted]
        with torch.no_grad():
            self._micro_batches.append(
                (micro_batch, [None if g is None else torch.div(g, self._scale) for g in gradients])
            )
            for name, before in accumulated.items():
                gradient = own[name]
                if before is not None:
                    # In place and in this order, so that the sum is rounded as it is without an observer.
                    parameters[name].grad = before if gradient is None else before.add_(gradient)

    def after_update(self, state: DeviceState) -> None:
        """Take what the step of the micro-batches since the last update has led to."""
        for micro_batch, gradients in self._micro_batches:
            if self._collector.wants(micro_batch):
                values = [_read_value(value, state, micro_batch, own) for value, own in zip(self.wanted, gradients)]
                self._collector.add(micro_batch, values)
        self._micro_batches = []

    def collect_results(self) -> List[torch.Tensor]:
        """Return a tensor for each of `wanted`, combined from micro-batches like the outputs of the call."""
        return self._collector.combine()


def _read_value(
    value: StepValue, state: DeviceState, micro_batch: MicroBatch, gradient: Optional[torch.Tensor]
) -> torch.Tensor:
    # the scaling that this step was run with, not the one that the next step will have
    if value.kind == "loss_scaling":
        return torch.tensor(state.final_loss_scale)
    if value.kind == "loss_scaling_factor":
        assert state.loss_scale_factor is not None
        return state.loss_scale_factor.clone()
    part = state.find_part(value.parameter, micro_batch.replica)
    weight = state.parameters[part].detach()
    if value.kind == "weight":
        return weight.clone()
    if value.kind == "gradient":
        return torch.zeros_like(weight) if gradient is None else gradient
    return state.slots[part][value.slot].detach().clone()
