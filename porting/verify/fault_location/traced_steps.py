"""One optimizer step with all that arises in it: of plain PyTorch as it runs, of a port as its call is replayed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Sequence

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from porting.diagnostics import caller_place
from porting.engines.calls.rehearsal import Rehearsal
from porting.engines.replay.direct_calls import Call, find_direct_call
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import walk_modules
from porting.support.module_hooks import follow_modules
from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin, keep_part
from porting.verify.plain_training import MicroBatch, PlainRun, PlainTraining
from porting.verify.reference_loss import make_loss_function

__all__ = ["LOSS", "ROOT", "StateParts", "StepTrace", "replay_call", "trace_plain_evaluation", "trace_plain_step"]

ROOT = "(model)"
"""Stands for the path of the model itself, whose class may have another name on the other side."""
LOSS = "(loss)"
"""Stands for the path of a loss module."""

Tensors = Dict[str, torch.Tensor]


@dataclass(frozen=True)
class StateParts:
    """Parameters, buffers and the optimizer's state by parameter, of large tensors in part."""

    parameters: Tensors = field(default_factory=dict)
    buffers: Tensors = field(default_factory=dict)
    slots: Dict[str, Tensors] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Any, buffers: Any, slots: Mapping[str, Mapping[str, Any]]) -> StateParts:
        """Copy a state, given by names; what is no tensor is left out."""
        return cls(
            _keep_parts(parameters), _keep_parts(buffers), {name: _keep_parts(own) for name, own in slots.items()}
        )


def _keep_parts(named: Any) -> Tensors:
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

    def run_backward(
        self, trace: MicroBatchTrace, backward: Callable[[], Any], parameters: Mapping[str, torch.Tensor], seed: float
    ) -> None:
        """Run the backward pass of a micro-batch, keep its gradients, and end it; `.grad` then holds the sum, as ever.

        `seed` is what its loss is multiplied by.
        """
        accumulated = {name: parameter.grad for name, parameter in parameters.items()}
        for parameter in parameters.values():
            parameter.grad = None
        trace.run_backward(backward)
        own = {}
        with torch.no_grad():
            for name, parameter in parameters.items():
                gradient, before = parameter.grad, accumulated[name]
                if gradient is not None:
                    own[name] = keep_part(gradient).float() / seed
                if before is not None:
                    # in place and in this order, so that the sum is rounded as it is when nobody watches
                    parameter.grad = before if gradient is None else before.add_(gradient)
        self.own_gradients.append(own)
        self.end_micro_batch(trace, seed)

    def end_micro_batch(self, trace: MicroBatchTrace, seed: float = 1.0) -> None:
        """Keep the trace of a micro-batch."""
        self.micro_batches.append(trace)
        self.seeds.append(seed)


# -- plain PyTorch -----------------------------------------------------------------------------------------------------


def trace_plain_step(run: PlainRun, micro_batches: Sequence[MicroBatch]) -> StepTrace:
    """Make one optimizer step of a plain training and return all that arises in it."""
    training = run.training
    parameters = dict(training.model.named_parameters())
    step = StepTrace(before=_read_plain_state(training))

    def run_passes(compute_loss: Callable[[], torch.Tensor], scale: float) -> torch.Tensor:
        watch = _PlainWatch(training.model)
        loss = watch.run(compute_loss)
        step.run_backward(watch.trace, (loss * scale).backward, parameters, scale)
        return loss

    made = run.step(micro_batches, run_passes=run_passes)
    step.gradients = _keep_parts(made.gradients)
    step.after = _read_plain_state(training)
    return step


def trace_plain_evaluation(training: PlainTraining, micro_batch: MicroBatch) -> MicroBatchTrace:
    """Run a forward pass with its loss; modes are those of the model."""
    watch = _PlainWatch(training.model)
    args, kwargs = micro_batch
    with torch.no_grad():
        watch.run(lambda: make_loss_function(training)(*args, **kwargs))
    return watch.trace


def _read_plain_state(training: PlainTraining) -> StateParts:
    model = training.model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    slots = {names.get(id(parameter), ""): state for parameter, state in training.optimizer.state.items()}
    return StateParts.of(model.named_parameters(), model.named_buffers(), slots)


class _PlainWatch(TorchFunctionMode):
    """Tells a trace which function of torch runs, in which module and on which line."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.trace = MicroBatchTrace()
        self._names = {id(module): prefix[:-1] or ROOT for prefix, module in walk_modules(model)}
        self._modules: List[str] = [""]

    def run(self, compute_loss: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Compute a loss and record how."""
        with follow_modules(self._enter_module, self._leave_module), self:
            loss = compute_loss()
        self.trace.keep_loss(loss)
        return loss

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        around = self._modules[-1]
        name = self._names.get(id(module))
        # a module around the model is none of the user's: it holds the loss
        self._modules.append(name or (around if around or hasattr(module, "loss_of") else LOSS))
        self.trace.enter_module(self._modules[-1], args)

    def _leave_module(self, _module: nn.Module, _args: Any, _result: Any) -> None:
        self._modules.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function and record it."""
        title = str(resolve_name(func) or getattr(func, "__name__", func))
        if title.endswith(("__get__", "__set__", ".backward")):
            return func(*args, **(kwargs or {}))
        return self.trace.run(Origin(self._modules[-1], caller_place(), title), func, args, kwargs or {})


# -- the port ----------------------------------------------------------------------------------------------------------


def replay_call(ported: Any, rehearsal: Rehearsal) -> List[StepTrace]:
    """Replay a call of a port on a copy of the simulator's device; return what arises in each of its optimizer steps.

    The rehearsal is used up. A call that does not train is one step.
    """
    watch = _PortedWatch(rehearsal, ported.port.model)
    executable = ReplayExecutable(
        rehearsal.graph, observer=watch, watch_operator=watch.watch_operator, find_call=find_direct_call
    )
    executable.run(
        rehearsal.state, rehearsal.inputs, rehearsal.plan, groups=rehearsal.groups, group_names=rehearsal.group_names
    )
    return watch.steps or [watch.step]


class _PortedWatch:
    """Watches the operators, the backward passes and the updates of a replay."""

    def __init__(self, rehearsal: Rehearsal, model: nn.Module) -> None:
        self.steps: List[StepTrace] = []
        self.step = StepTrace(before=_read_device_state(rehearsal.state))
        self._rehearsal = rehearsal
        self._paths = {prefix[:-1]: prefix[:-1] for prefix, _module in walk_modules(model)}
        # the capture calls the model itself by its class
        self._paths.update({type(model).__name__: ROOT, "": ""})
        self._is_forward = True
        self._trace = MicroBatchTrace()

    def watch_operator(self, node: torch.fx.Node, call: Call) -> Callable[..., Any]:
        """Return a function that calls the operator and records it."""
        module = self._paths.get(str(node.meta.get("module_path", "")), LOSS)
        origin = Origin(module, node.meta.get("place"), str(node.meta.get("operator", str(node.target))))

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_forward:
                return call.function(*args, **kwargs)
            return self._trace.run(origin, call.function, args, kwargs)

        return run

    def after_forward(self, results: Sequence[torch.Tensor], state: Any, micro_batch: Any) -> None:
        """Keep the loss, or the last output where there is none; without a backward pass the micro-batch ends here."""
        graph = self._rehearsal.graph
        if graph.has_loss:
            self._trace.keep_loss(results[-1])
        else:
            self._trace.loss = results[-1].detach().clone()
        if not (graph.has_loss and graph.loss_has_gradient):
            self.step.end_micro_batch(self._trace)
            self._trace = MicroBatchTrace()

    def during_backward(self, backward: Callable[[], None], state: Any, micro_batch: Any) -> None:
        """Run the backward pass of a micro-batch, keeping its gradients apart."""
        plan, groups = self._rehearsal.plan, self._rehearsal.groups
        scaling = float(groups[0].loss_scaling) if groups else 1.0
        scaling *= 1.0 if state.loss_scale_factor is None else float(state.loss_scale_factor)
        self._is_forward = False
        try:
            self.step.run_backward(self._trace, backward, state.parameters, scaling * plan.backward_scale)
        finally:
            self._is_forward = True
        self._trace = MicroBatchTrace()
        gradients = _keep_parts({name: parameter.grad for name, parameter in state.parameters.items()})
        factor = plan.update_scale / scaling
        self.step.gradients = {name: gradient.float() * factor for name, gradient in gradients.items()}

    def after_update(self, state: Any) -> None:
        """End a step."""
        self.step.after = _read_device_state(state)
        self.steps.append(self.step)
        self.step = StepTrace(before=self.step.after)


def _read_device_state(state: Any) -> StateParts:
    return StateParts.of(state.parameters, state.buffers[0], state.slots)
