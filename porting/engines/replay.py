"""The replay engine: the captured ATen graph run literally, differentiated by autograd, updated as torch would."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from typing import AbstractSet, Any, ContextManager, Iterator, List, Optional, Sequence, Tuple

import torch

from ..capture import StepGraph
from ..diagnostics import Place
from .call_plan import CallPlan, OutputCollector, Turn
from .device_state import DeviceState
from .graph_function import GraphFunction
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
        self._function = GraphFunction(graph.graph)
        self._num_outputs = len(graph.outputs)
        self._trains = graph.has_loss and graph.loss_has_gradient
        self._is_random = graph.is_random
        self._seed: Optional[Tuple[float, torch.Tensor]] = None
        self._written_inputs = tuple(sorted(graph.mutated_inputs))

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

        Errors of operators that only values can cause (a label out of range) come through with a note of the user's
        line; the step that fails changes no weight.
        """
        collector = OutputCollector(plan)
        scaling = plan.gradient_scale * (groups[0].loss_scaling if groups else 1.0)
        shared = state.storages() | {tensor.untyped_storage().data_ptr() for tensor in inputs}
        try:
            stream = _own_random_stream(state) if self._is_random else nullcontext()
            with _undisturbed(), torch.set_grad_enabled(self._trains), torch._C.DisableTorchFunction(), stream:
                for turns in plan.steps():
                    for turn in turns:
                        results = self._micro_batch(state, turn, self._rows(inputs, turn, plan), scaling)
                        if plan.keeps(turn):
                            collector.add(turn, [_own(result, shared) for result in results])
                    if self._trains:
                        apply_update(groups, group_names, state.parameters, state.slots)
        except Exception as error:
            _note_place(error, self._function.place_of(error.__traceback__))
            for parameter in state.parameters.values():
                parameter.grad = None
            raise
        return collector.combine()

    def _rows(self, inputs: Sequence[torch.Tensor], turn: Turn, plan: CallPlan) -> List[torch.Tensor]:
        """Cut the rows of one micro-batch out of `inputs`, and copy what the graph writes to."""
        batch = [_narrow(tensor, turn.position, plan.num_turns) for tensor in inputs]
        for index, tensor in enumerate(batch):
            # autograd keeps no tensor that was made under `torch.inference_mode`
            if index in self._written_inputs or (self._trains and tensor.is_inference()):
                batch[index] = tensor.clone()
        return batch

    def _micro_batch(
        self, state: DeviceState, turn: Turn, batch: Sequence[torch.Tensor], scaling: float
    ) -> List[torch.Tensor]:
        """Run forward, and backward if there is one; return the outputs and the inputs that were written to."""
        buffers = state.buffers[turn.replica]
        results = self._function.call(*state.parameters.values(), *buffers.values(), *batch, *state.constants)
        if self._trains:
            self._backward(results[-1], scaling)
        return [*results[: self._num_outputs], *(batch[index] for index in self._written_inputs)]

    def _backward(self, loss: torch.Tensor, scaling: float) -> None:
        """Add the gradients of `scaling` times the sum of `loss` to those of the parameters."""
        if self._seed is None or self._seed[0] != scaling:
            self._seed = (scaling, torch.full_like(loss, scaling))
        # what `Tensor.backward` does once it has checked its arguments
        _ENGINE.run_backward((loss,), self._seed[1:], False, False, (), allow_unreachable=True, accumulate_grad=True)


_ENGINE: Any = torch.autograd.Variable._execution_engine


def _narrow(tensor: torch.Tensor, position: int, num_turns: int) -> torch.Tensor:
    if num_turns == 1 or tensor.dim() == 0:
        return tensor
    rows = tensor.shape[0] // num_turns
    return tensor.narrow(0, position * rows, rows)


def _own(result: torch.Tensor, shared: AbstractSet[int]) -> torch.Tensor:
    """Return a result that nothing else will write to: a copy where it is a view of a weight, buffer or input."""
    result = result.detach()
    return result.clone() if result.untyped_storage().data_ptr() in shared else result


def _note_place(error: Exception, place: Optional[Place]) -> None:
    """Say in `error` which of the user's lines it is about; Python can add notes since 3.11."""
    if place is not None and hasattr(error, "add_note"):
        error.add_note(f"  --> {place}: the operator that failed was captured here")


def _undisturbed() -> ContextManager[Any]:
    """Shut out the modes of a caller that would reach into the graph's operators."""
    contexts = ExitStack()
    if torch.is_inference_mode_enabled():
        contexts.enter_context(torch.inference_mode(False))
    if torch.is_autocast_enabled("cpu"):
        contexts.enter_context(torch.autocast("cpu", enabled=False))
    return contexts


@contextmanager
def _own_random_stream(state: DeviceState) -> Iterator[None]:
    """Let random operators draw from the device's stream; without a seed it starts where the host's stands."""
    host = torch.get_rng_state()
    if state.rng_state is not None:
        torch.set_rng_state(state.rng_state)
    try:
        yield
        state.rng_state = torch.get_rng_state()
    finally:
        torch.set_rng_state(host)
