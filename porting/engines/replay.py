"""The replay engine: the captured ATen graph run literally, differentiated by autograd, updated by fused kernels."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import Any, Iterator, List, Optional, Sequence

import torch

from ..capture import StepGraph
from .call_plan import CallPlan, OutputCollector
from .device_state import DeviceState
from .updates import apply_update

__all__ = ["ReplayExecutable"]


class ReplayExecutable:
    """`graph` as a Python function of tensors.

    It gives the user's `forward` its device meaning: the same operators in the same order on the device's tensors,
    with in-place writes where the user wrote in place, and nothing else.
    """

    name = "replay"

    def __init__(self, graph: StepGraph) -> None:
        """Generate the function of `graph`; no value is computed."""
        self.graph = graph
        self._function = torch.fx.GraphModule(torch.nn.Module(), graph.graph).forward
        self._num_outputs = len(graph.outputs)
        self._trains = graph.has_loss and graph.loss_has_gradient
        self._is_random = graph.is_random
        self._written_inputs = sorted(graph.mutated_inputs)

    def run(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        plan: CallPlan,
        *,
        groups: Sequence[Any] = (),
        group_names: Sequence[Sequence[str]] = (),
    ) -> List[torch.Tensor]:
        """Run one device call on a full batch and update `state`.

        `inputs` hold the rows of all micro-batches along dimension 0, already of the device's types. Returns the
        outputs combined as `plan` asks, then the inputs that the graph writes to, likewise combined. Results are new
        tensors without a gradient; `inputs` themselves are not changed. The global random generator is not touched:
        random operators draw from `state.rng_state`.
        """
        collector = OutputCollector(plan)
        scaling = plan.gradient_scale * (groups[0].loss_scaling if groups else 1.0)
        protected = state.storages() | {tensor.untyped_storage().data_ptr() for tensor in inputs}
        with _own_random_stream(state) if self._is_random else nullcontext(), _grad_mode(self._trains):
            for turns in plan.steps():
                for turn in turns:
                    batch = [_rows(tensor, turn.position, plan.num_turns) for tensor in inputs]
                    for index in self._written_inputs:
                        batch[index] = batch[index].clone()
                    results = self._forward(state, turn.replica, batch, scaling)
                    results += [batch[index] for index in self._written_inputs]
                    if plan.output_mode == "sum" or plan.keeps(turn):
                        collector.add(turn, [_own(result, protected) for result in results])
                if self._trains:
                    apply_update(groups, group_names, state.parameters, state.slots)
        return collector.combine()

    def _forward(
        self, state: DeviceState, replica: int, batch: Sequence[torch.Tensor], scaling: float
    ) -> List[torch.Tensor]:
        results = self._function(*state.parameters.values(), *state.buffers[replica].values(), *batch, *state.constants)
        if self._trains:
            loss = results[-1]
            loss.backward(None if scaling == 1.0 and loss.dim() == 0 else torch.full_like(loss, scaling))
        return list(results[: self._num_outputs])


def _rows(tensor: torch.Tensor, position: int, num_turns: int) -> torch.Tensor:
    if num_turns == 1 or tensor.dim() == 0:
        return tensor
    rows = tensor.shape[0] // num_turns
    return tensor.narrow(0, position * rows, rows)


def _own(result: torch.Tensor, protected: Any) -> torch.Tensor:
    """Return a result that nothing else will write to: a copy where it is a view of a weight, buffer or input."""
    result = result.detach()
    return result.clone() if result.untyped_storage().data_ptr() in protected else result


@contextmanager
def _grad_mode(enabled: bool) -> Iterator[None]:
    """Set autograd's mode, and restore it whatever the graph switched in between."""
    with torch.set_grad_enabled(enabled):
        yield


@contextmanager
def _own_random_stream(state: DeviceState) -> Iterator[None]:
    """Let random operators draw from the device's stream; without a seed it starts where the host's stands."""
    host: Optional[torch.Tensor] = torch.get_rng_state()
    if state.rng_state is not None:
        torch.set_rng_state(state.rng_state)
    try:
        yield
        state.rng_state = torch.get_rng_state()
    finally:
        torch.set_rng_state(host)
