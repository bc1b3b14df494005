"""Run the captured graph literally: autograd differentiates it, and torch's arithmetic updates the weights.

It is what any step falls back to.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from functools import partial
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.graph_flow import constant_outputs, is_half
from ...diagnostics import Place
from ...torch_insides.autograd import run_backward
from ...torch_insides.modes import DisableTorchFunction, TorchDispatchMode
from ...torch_insides.trees import tree_leaves
from ..calls.call_plan import (
    CallPlan,
    MicroBatch,
    OutputCollector,
    Runs,
    cut_rows,
    detach_result,
    make_synthetic_inputs,
    prepare_rows,
)
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, Choice
from ..calls.group_settings import GroupSettings
from ..calls.guards import draw_from_stream_of, shut_out_host_modes
from ..calls.step_anchors import StepWatcher
from ..update.updates import adapt_loss_scaling, apply_update
from .batched_micro_batches import BatchedMicroBatches
from .direct_calls import Call
from .graph_function import GraphFunction, WatchOperator
from .wide_operators import find_wide_call

__all__ = ["FloatingPointChecks", "ReplayExecutable", "build_replay", "read_loss_scaling"]


def build_replay(graph: StepGraph, request: BuildRequest) -> ReplayExecutable:
    """Return the executable that replays `graph`, which has the memory format of the request's choice."""
    return ReplayExecutable(graph, request.choice, observer=request.observer)


class ReplayExecutable:
    """`graph` as a Python function of tensors.

    It gives the user's `forward` its device meaning: the same operators in the same order on the device's tensors,
    with in-place writes where the user wrote in place, and nothing else. Small micro-batches that provably do not
    meet run several at once.
    """

    name = "replay"

    def __init__(
        self,
        graph: StepGraph,
        choice: Choice = Choice(),  # noqa: B008 - frozen
        *,
        observer: Optional[StepWatcher] = None,
        watch_operator: Optional[WatchOperator] = None,
        find_call: Callable[[torch.fx.Node], Call] = find_wide_call,
    ) -> None:
        """Generate the function of `graph`; no value is computed.

        `observer` is told of each pass and each update, and an operator is called through what `watch_operator` returns
        for it. `find_call` says what is called for an operator.

        With the choice's `fused_update` weights differ from eager's in the last bits.
        """
        self.graph = graph
        self._function = GraphFunction(graph.graph, watch=watch_operator, find_call=find_call)
        self._num_outputs = len(graph.outputs)
        self._trains = graph.has_loss and graph.loss_has_gradient
        self._is_random = graph.is_random
        # The start of the backward pass, made once: a tensor each call would be a good part of a small step.
        self._seed: Optional[Tuple[float, torch.Size, torch.Tensor]] = None
        self._has_halves = any(map(is_half, graph.graph.nodes))
        self._trains_halves = any(info.requires_grad and info.dtype == torch.float16 for info in graph.parameters)
        self._synthetic: Optional[List[torch.Tensor]] = None
        self._written_inputs = tuple(sorted(graph.mutated_inputs))
        self._constant_outputs = constant_outputs(graph)
        self._observer = observer
        self._fused_update = choice.fused_update
        self._num_threads = choice.num_threads
        self._scheduled: Optional[Tuple[CallPlan, int, Runs]] = None
        # somebody who watches looks at single micro-batches
        at_most = choice.micro_batches_at_once if observer is None else 1
        self._batched = BatchedMicroBatches(graph, self._function.call, at_most=at_most)

    def run(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        plan: CallPlan,
        *,
        groups: Sequence[GroupSettings] = (),
        group_names: Sequence[Sequence[str]] = (),
    ) -> List[torch.Tensor]:
        """Run one device call on a full batch and update `state`.

        `inputs` hold the rows of all micro-batches along dimension 0, already of the device's types. Returns the
        outputs combined as `plan` asks, then the inputs that the graph writes to, likewise combined. Results are new
        tensors without a gradient; `inputs` themselves are not changed. The global random generator is not touched:
        random operators draw from `state.rng_state`.

        Errors of operators that only values can cause (a label out of range) come through with a note of the user's
        line; the step that fails changes no weight and leaves no gradient.
        """
        if plan.synthetic:
            self._synthetic = self._synthetic or make_synthetic_inputs(inputs, plan.synthetic)
            inputs = self._synthetic
        collector = OutputCollector(plan, constant=self._constant_outputs)
        # A result that aliases a weight, a buffer or an input would change under the user with the next call.
        shared = state.collect_storages() | {tensor.untyped_storage().data_ptr() for tensor in inputs}
        draws = self._is_random or plan.rounds_at_random
        # The device adds up half-precision gradients of several micro-batches in single precision if told so. Autograd
        # would add them in half, into `.grad`.
        adds_up = self._trains_halves and len(plan.steps[0]) > 1 and bool(groups)
        widens = adds_up and groups[0].accum_type == torch.float32
        # outside of the guards, in which torch cannot load anything
        schedule = self._cut_into_runs(plan, state)
        try:
            stream = draw_from_stream_of(state) if draws else nullcontext()
            guards = shut_out_host_modes(self._num_threads)
            with guards, torch.set_grad_enabled(self._trains), DisableTorchFunction(), stream:
                # One pass for each optimizer step: all of its micro-batches, then the update, in place on the device's
                # tensors.
                for runs in schedule:
                    scaling = read_loss_scaling(state, groups)
                    wide: Dict[str, torch.Tensor] = {}
                    for micro_batches in runs:
                        for micro_batch, results in self._run_micro_batches(
                            state, inputs, micro_batches, plan, scaling
                        ):
                            if widens:
                                _accumulate_in_single(state, wide)
                            if collector.wants(micro_batch):
                                collector.add(micro_batch, [detach_result(result, shared) for result in results])
                    if self._trains:
                        self._update_weights(state, plan, scaling, groups, group_names, wide)
        # KeyboardInterrupt as well: gradients of half a step must not be added to the next one's.
        except BaseException as error:
            _note_place(error, self._function.find_place(error.__traceback__))
            for parameter in state.parameters.values():
                parameter.grad = None
            raise
        return collector.combine()

    def _cut_into_runs(self, plan: CallPlan, state: DeviceState) -> Runs:
        """Return the runs of each optimizer step of a call, or of the whole call in inference."""
        # A check has to name the micro-batch that failed. And replicas with weights of their own have no weight in
        # common that the others could be mapped beside.
        most = 1 if plan.checks_floats or state.groups or plan.num_slices == 1 else self._batched.most
        if self._scheduled is None or self._scheduled[0] is not plan or self._scheduled[1] != most:
            if most > 1:
                self._batched.prepare()
            self._scheduled = (plan, most, plan.cut_into_runs(most, keeps_steps=self._trains))
        return self._scheduled[2]

    def _update_weights(
        self,
        state: DeviceState,
        plan: CallPlan,
        scaling: float,
        groups: Sequence[GroupSettings],
        group_names: Sequence[Sequence[str]],
        accumulated: Mapping[str, torch.Tensor],
    ) -> None:
        """Make one optimizer step from the gradients of all micro-batches, which are `scaling` times too large."""
        state.final_loss_scale = scaling
        apply_update(
            groups,
            group_names,
            state.parameters,
            state.slots,
            loss_scaling=scaling,
            accumulated=accumulated,
            scale=plan.update_scale,
            exchange=plan.exchange,
            observe=partial(adapt_loss_scaling, state) if plan.adapts_loss_scaling and self._has_halves else None,
            rounds_at_random=plan.rounds_at_random,
            is_fused=self._fused_update,
        )
        if self._observer is not None:
            self._observer.after_update(state)

    def _run_micro_batches(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        micro_batches: Sequence[MicroBatch],
        plan: CallPlan,
        scaling: float,
    ) -> Iterator[Tuple[MicroBatch, Sequence[torch.Tensor]]]:
        """Run micro-batches, at once if there are several and it can be done, and yield the results of each."""
        at_once = self._run_at_once(state, inputs, micro_batches, plan, scaling) if len(micro_batches) > 1 else None
        if at_once is not None:
            yield from zip(micro_batches, at_once)
            return
        for micro_batch in micro_batches:
            cut = (cut_rows(tensor, micro_batch.position, plan.num_slices) for tensor in inputs)
            # a copy of what the graph writes to
            rows = [
                prepare_rows(tensor, is_written=index in self._written_inputs, trains=self._trains)
                for index, tensor in enumerate(cut)
            ]
            with FloatingPointChecks() if plan.checks_floats else _NOTHING:
                results = self._run_micro_batch(state, micro_batch, rows, scaling * plan.backward_scale)
            yield micro_batch, results
        if len(micro_batches) > 1:
            # They ran alone without an error, so it was the mapping that failed, and would fail again.
            self._batched.give_up()

    def _run_at_once(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        micro_batches: Sequence[MicroBatch],
        plan: CallPlan,
        scaling: float,
    ) -> Optional[Iterator[Sequence[torch.Tensor]]]:
        """Run all of `micro_batches` at once; return the results of each, or None if it cannot be done."""
        done = self._batched.run(state, inputs, micro_batches, plan)
        if done is None:
            return None
        results, rows = done
        if self._trains:
            self._run_backward(results[-1], scaling * plan.backward_scale)
        results = [*results[: self._num_outputs], *(rows[index] for index in self._written_inputs)]
        parts = zip(*(result.unbind() for result in results))
        if plan.num_kept <= 1:
            # what the host keeps must not keep the memory of the others
            return (
                [part.clone() for part in of_micro_batch] if plan.keeps(micro_batch) else of_micro_batch
                for micro_batch, of_micro_batch in zip(micro_batches, parts)
            )
        return parts

    def _run_micro_batch(
        self, state: DeviceState, micro_batch: MicroBatch, batch: Sequence[torch.Tensor], scaling: float
    ) -> List[torch.Tensor]:
        """Run forward, and backward if there is one; return the outputs and the inputs that were written to."""
        results = self._function.call(*state.list_arguments(micro_batch.replica), *batch, *state.constants)
        if self._observer is not None:
            self._observer.after_forward(results, state, micro_batch)
        if self._trains:
            if self._observer is None:
                self._run_backward(results[-1], scaling)
            else:
                self._observer.during_backward(partial(self._run_backward, results[-1], scaling), state, micro_batch)
        # The written inputs are the rows themselves, read after the graph has run.
        return [*results[: self._num_outputs], *(batch[index] for index in self._written_inputs)]

    def _run_backward(self, loss: torch.Tensor, scaling: float) -> None:
        """Add the gradients of `scaling` times the sum of `loss` to those of the parameters."""
        if self._seed is None or self._seed[0] != scaling or self._seed[1] != loss.shape:
            self._seed = (scaling, loss.shape, torch.full_like(loss, scaling))
        run_backward((loss,), self._seed[2:], False, False, (), allow_unreachable=True, accumulate_grad=True)


_NOTHING: ContextManager[Any] = nullcontext()


def read_loss_scaling(state: DeviceState, groups: Sequence[GroupSettings]) -> float:
    """Return what the next step's loss is multiplied by."""
    scaling: float = groups[0].loss_scaling if groups else 1.0
    return scaling if state.loss_scale_factor is None else scaling * float(state.loss_scale_factor)


def _accumulate_in_single(state: DeviceState, accumulated: Dict[str, torch.Tensor]) -> None:
    """Move the gradients of half-precision parameters to `accumulated`, where they add up in single precision."""
    for name, parameter in state.parameters.items():
        gradient = parameter.grad
        if gradient is not None and gradient.dtype == torch.float16:
            before = accumulated.get(name)
            accumulated[name] = gradient.float() if before is None else before.add_(gradient)
            parameter.grad = None


def _note_place(error: BaseException, place: Optional[Place]) -> None:
    """Say in `error` which of the user's lines it is about; Python can add notes since 3.11."""
    if place is not None and hasattr(error, "add_note"):
        error.add_note(f"  --> {place}: the operator that failed was captured here")


# -- floating-point exceptions -----------------------------------------------------------------------------------------

_COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
_UNINITIALISED = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"])


class FloatingPointChecks(TorchDispatchMode):
    """Raises FloatingPointError at the first operator, forward or backward, that a device would stop at.

    These are invalid operations (a NaN that no operand had, a comparison with NaN) and overflow or division by zero
    (an infinity that no operand had). Numbers that are not finite because the program says so, such as a mask filled
    with minus infinity, are no exception.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Run one operator and look at its result."""
        # Operands are looked at before the operator runs, which may overwrite them in place.
        name = func.overloadpacket.__name__
        leaves = tree_leaves((args, kwargs or {}))
        operands = list(_iter_floats(leaves))
        has_nan = any(bool(operand.isnan().any()) for operand in operands)
        has_infinity = any(bool(operand.isinf().any()) for operand in operands)
        if has_nan and name in _COMPARISONS:
            raise FloatingPointError(f"invalid operation: aten::{name} compares with NaN")
        result = func(*args, **(kwargs or {}))
        # Memory that nobody has written yet holds anything. And a program that names infinity means it.
        names_infinity = any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in leaves)
        if operands and name not in _UNINITIALISED and not names_infinity:
            for value in _iter_floats(tree_leaves(result)):
                if not has_nan and bool(value.isnan().any()):
                    raise FloatingPointError(f"invalid operation: the result of aten::{name} is NaN")
                if not has_infinity and bool(value.isinf().any()):
                    raise FloatingPointError(f"overflow or division by zero: the result of aten::{name} is infinite")
        return result


def _iter_floats(leaves: List[Any]) -> Iterator[torch.Tensor]:
    return (leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel() > 0)
