"""Trace one optimizer step with all that arises in it: of plain PyTorch as it runs, of a port in a replay of its call.

`evidence` has a trace of each side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from torch import nn

from porting.api.ported_model import PortedModel
from porting.engines.calls.rehearsal import Rehearsal
from porting.engines.replay.direct_calls import find_direct_call
from porting.engines.replay.watched_replay import read_state, watch_replay
from porting.host_tensors import walk_modules
from porting.observe.plain_functions import watch_functions
from porting.observe.watcher import BackwardPass, ForwardResults, OperatorCall, StepState
from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin, keep_part
from porting.verify.plain_training import MicroBatch, PlainRun, PlainTraining
from porting.verify.reference_loss import make_loss_function

__all__ = ["LOSS", "ROOT", "StateParts", "StepTrace", "replay_call", "trace_plain_evaluation", "trace_plain_step"]

ROOT = "(model)"
"""Stands for the path of the model itself, whose class may have another name on the other side."""
LOSS = "(loss)"
"""Stands for the path of a loss module."""

Tensors = Dict[str, torch.Tensor]
_Named = Union[Mapping[str, object], Iterable[Tuple[str, object]]]


@dataclass(frozen=True)
class StateParts:
    """Parameters, buffers and the optimizer's state by parameter, of large tensors in part."""

    parameters: Tensors = field(default_factory=dict)
    buffers: Tensors = field(default_factory=dict)
    slots: Dict[str, Tensors] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: _Named, buffers: _Named, slots: Mapping[str, Mapping[str, object]]) -> StateParts:
        """Copy a state, given by names; what is no tensor is left out."""
        return cls(
            _keep_parts(parameters), _keep_parts(buffers), {name: _keep_parts(own) for name, own in slots.items()}
        )

    @classmethod
    def keep(cls, state: StepState) -> StateParts:
        """Copy a state."""
        return cls.of(state.parameters, state.buffers, state.slots)


def _keep_parts(named: _Named) -> Tensors:
    return {name: keep_part(value) for name, value in dict(named).items() if isinstance(value, torch.Tensor)}


@dataclass
class StepTrace:
    """An optimizer step: the trace of each micro-batch, the gradients that the update used, the state around it.

    `own_gradients` are those of each micro-batch's loss alone; `seeds` what the losses were multiplied by.
    """

    micro_batches: List[MicroBatchTrace] = field(default_factory=list)
    seeds: List[float] = field(default_factory=list)
    own_gradients: List[Tensors] = field(default_factory=list)
    gradients: Tensors = field(default_factory=dict)
    before: StateParts = field(default_factory=StateParts)
    after: StateParts = field(default_factory=StateParts)

    @property
    def losses(self) -> List[float]:
        """The loss of each micro-batch."""
        return [float(trace.loss.sum()) for trace in self.micro_batches if trace.loss is not None]

    def run_backward(self, trace: MicroBatchTrace, backward: BackwardPass) -> None:
        """Run the backward pass of a micro-batch, keep its gradients, and end it; `.grad` holds the sum, as ever."""
        accumulated = {name: parameter.grad for name, parameter in backward.parameters.items()}
        for parameter in backward.parameters.values():
            parameter.grad = None
        trace.run_backward(backward.run)
        own = {}
        with torch.no_grad():
            for name, parameter in backward.parameters.items():
                gradient, before = parameter.grad, accumulated[name]
                if gradient is not None:
                    own[name] = keep_part(gradient).float() / backward.seed
                if before is not None:
                    # in place and in this order, so that the sum is rounded as it is when nobody watches
                    parameter.grad = before if gradient is None else before.add_(gradient)
        self.own_gradients.append(own)
        self.end_micro_batch(trace, backward.seed)

    def end_micro_batch(self, trace: MicroBatchTrace, seed: float = 1.0) -> None:
        """Keep the trace of a micro-batch."""
        self.micro_batches.append(trace)
        self.seeds.append(seed)


class _StepTracer:
    """The watcher that traces each step; `paths` are those of the modules where what runs calls them otherwise.

    Operators whose names end with one of `passes_on` are not recorded: they read an attribute, or are a pass.
    """

    def __init__(
        self, state: StepState, paths: Optional[Mapping[str, str]] = None, *, passes_on: Tuple[str, ...] = ()
    ) -> None:
        self.steps: List[StepTrace] = []
        self.trace = MicroBatchTrace()
        self.step = StepTrace(before=StateParts.keep(state))
        self._paths, self._passes_on = paths, passes_on

    def run_operator(self, call: OperatorCall) -> Any:
        """Run an operator and record it."""
        operator = call.operator
        if operator.name.endswith(self._passes_on):
            return call.run()
        path = operator.module_path if self._paths is None else self._paths.get(operator.module_path, LOSS)
        return self.trace.run(Origin(path, operator.place, operator.name), call.function, call.args, call.kwargs)

    def end_forward(self, results: ForwardResults) -> None:
        """Keep the loss, or the last output where there is none; without a backward pass the micro-batch ends here."""
        if results.loss is not None:
            self.trace.keep_loss(results.loss)
        else:
            self.trace.loss = results.outputs[-1].detach().clone()
        if not results.has_backward:
            self.step.end_micro_batch(self.trace)
            self.trace = MicroBatchTrace()

    def run_backward(self, backward: BackwardPass) -> None:
        """Run the backward pass of a micro-batch, keeping its gradients apart."""
        self.step.run_backward(self.trace, backward)
        self.trace = MicroBatchTrace()
        gradients = _keep_parts({name: parameter.grad for name, parameter in backward.parameters.items()})
        if backward.factor is not None:
            gradients = {name: gradient.float() * backward.factor for name, gradient in gradients.items()}
        self.step.gradients = gradients

    def end_update(self, state: StepState) -> None:
        """End a step."""
        self.step.after = StateParts.keep(state)
        self.steps.append(self.step)
        self.step = StepTrace(before=self.step.after)


# -- plain PyTorch -----------------------------------------------------------------------------------------------------


def trace_plain_step(run: PlainRun, micro_batches: Sequence[MicroBatch]) -> StepTrace:
    """Make one optimizer step of a plain training and return all that arises in it."""
    training = run.training
    parameters = dict(training.model.named_parameters())
    tracer = _make_plain_tracer(training)

    def run_passes(compute_loss: Callable[[], torch.Tensor], scale: float) -> torch.Tensor:
        loss = _trace_forward(training, compute_loss, tracer)
        tracer.run_backward(BackwardPass((loss * scale).backward, parameters, scale))
        return loss

    run.step(micro_batches, run_passes=run_passes)
    tracer.end_update(StepState.of(training.model, training.optimizer))
    return tracer.steps[0]


def trace_plain_evaluation(training: PlainTraining, micro_batch: MicroBatch) -> MicroBatchTrace:
    """Run a forward pass with its loss; modes are those of the model."""
    tracer = _make_plain_tracer(training)
    args, kwargs = micro_batch
    with torch.no_grad():
        _trace_forward(training, lambda: make_loss_function(training)(*args, **kwargs), tracer, has_backward=False)
    return tracer.step.micro_batches[0]


def _make_plain_tracer(training: PlainTraining) -> _StepTracer:
    return _StepTracer(StepState.of(training.model, training.optimizer), passes_on=("__get__", "__set__", ".backward"))


def _trace_forward(
    training: PlainTraining, compute_loss: Callable[[], torch.Tensor], tracer: _StepTracer, *, has_backward: bool = True
) -> torch.Tensor:
    """Compute a loss and record how."""
    names = {id(module): prefix[:-1] or ROOT for prefix, module in walk_modules(training.model)}

    def enter_module(module: nn.Module, around: str, args: Tuple[Any, ...]) -> str:
        # a module around the model is none of the user's: it holds the loss
        path = names.get(id(module)) or (around if around or hasattr(module, "loss_of") else LOSS)
        tracer.trace.enter_module(path, args)
        return path

    loss = watch_functions(compute_loss, tracer, find_path=enter_module)
    tracer.end_forward(ForwardResults(loss, has_backward=has_backward))
    return loss


# -- the port ----------------------------------------------------------------------------------------------------------


def replay_call(ported: PortedModel, rehearsal: Rehearsal) -> List[StepTrace]:
    """Replay a call of a port on a copy of the simulator's device; return what arises in each of its optimizer steps.

    The rehearsal is used up. A call that does not train is one step.
    """
    model = ported.port.model
    paths = {prefix[:-1]: prefix[:-1] for prefix, _module in walk_modules(model)}
    # the capture calls the model itself by its class
    paths.update({type(model).__name__: ROOT, "": ""})
    tracer = _StepTracer(read_state(rehearsal.state), paths)
    watch_replay(rehearsal, tracer, find_call=find_direct_call)()
    return tracer.steps or [tracer.step]
