"""One optimizer step with all that arises in it: of plain PyTorch as it runs, of a port as its call is replayed."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Mapping, Sequence

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from porting.diagnostics import caller_place
from porting.engines.calls.rehearsal import Rehearsal
from porting.engines.replay.direct_calls import Call, find_direct_call
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import walk_modules
from porting.structure import flatten_tensors
from porting.support.module_hooks import follow_modules
from porting.verify.fault_location.step_trace import MicroBatchTrace, Origin, keep_part
from porting.verify.plain_training import (
    MicroBatch,
    PlainRun,
    PlainTraining,
    cut_micro_batches,
)
from porting.verify.reference_loss import make_loss_function

__all__ = [
    "LOSS",
    "ROOT",
    "StateParts",
    "StepTrace",
    "name_modules_of",
    "replay_call",
    "trace_plain_evaluation",
    "trace_plain_step",
    "trace_ported_call",
]

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
    def losses(self) -> List[torch.Tensor]:
        """The loss of each micro-batch."""
        return [trace.loss for trace in self.micro_batches if trace.loss is not None]


def name_modules_of(model: nn.Module) -> Dict[int, str]:
    """Return the path of each module by its identity; that of the model itself is `ROOT`."""
    return {id(module): prefix[:-1] or ROOT for prefix, module in walk_modules(model)}


# -- plain PyTorch -----------------------------------------------------------------------------------------------------


def trace_plain_step(run: PlainRun, micro_batches: Sequence[MicroBatch]) -> StepTrace:
    """Make one optimizer step of a plain training and return all that arises in it."""
    training = run.training
    model, names = training.model, name_modules_of(training.model)
    parameters = dict(model.named_parameters())
    parameter_names = {id(parameter): name for name, parameter in parameters.items()}
    step = StepTrace(before=_read_plain_state(model, training.optimizer))

    def run_passes(compute_loss: Callable[[], torch.Tensor], scale: float) -> torch.Tensor:
        trace = MicroBatchTrace(parameter_names)
        watch = _PlainWatch(trace, names)
        with watch.modules_followed(), watch:
            loss = compute_loss()
        trace.end_forward(loss)
        own = _run_backward_apart(parameters, (loss * scale).backward)
        trace.forget_graph()
        step.own_gradients.append({name: gradient / scale for name, gradient in own.items()})
        step.micro_batches.append(trace)
        step.seeds.append(scale)
        return loss

    made = run.step(micro_batches, run_passes=run_passes)
    step.gradients = {name: keep_part(gradient) for name, gradient in made.gradients.items()}
    step.after = _read_plain_state(model, training.optimizer)
    return step


def trace_plain_evaluation(
    training: PlainTraining, args: Sequence[Any], kwargs: Mapping[str, Any], num_parts: int
) -> MicroBatchTrace:
    """Run the forward pass, with its loss, of the first of `num_parts` micro-batches; modes are those of the model."""
    names = name_modules_of(training.model)
    trace = MicroBatchTrace({})
    watch = _PlainWatch(trace, names)
    own_args, own_kwargs = cut_micro_batches(args, kwargs, num_parts)[0]
    loss_of = make_loss_function(training)
    with torch.no_grad(), watch.modules_followed(), watch:
        loss = loss_of(*own_args, **own_kwargs)
    trace.end_forward(loss)
    return trace


def _read_plain_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> StateParts:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    slots: Dict[str, Tensors] = {}
    for parameter, state in optimizer.state.items():
        tensors = {slot: keep_part(value) for slot, value in state.items() if isinstance(value, torch.Tensor)}
        slots[names.get(id(parameter), "")] = tensors
    return StateParts(
        {name: keep_part(parameter) for name, parameter in model.named_parameters()},
        {name: keep_part(buffer) for name, buffer in model.named_buffers()},
        slots,
    )


def _run_backward_apart(parameters: Mapping[str, torch.Tensor], backward: Callable[[], Any]) -> Tensors:
    """Run a backward pass and return the gradients of it alone; `.grad` then holds the sum, as ever."""
    accumulated = {name: parameter.grad for name, parameter in parameters.items()}
    for parameter in parameters.values():
        parameter.grad = None
    backward()
    own = {}
    with torch.no_grad():
        for name, parameter in parameters.items():
            gradient, before = parameter.grad, accumulated[name]
            if gradient is not None:
                own[name] = keep_part(gradient)
            if before is not None:
                # in place and in this order, so that the sum is rounded as it is when nobody watches
                parameter.grad = before if gradient is None else before.add_(gradient)
    return own


class _PlainWatch(TorchFunctionMode):
    """Tells a trace which function of torch runs, in which module and on which line."""

    def __init__(self, trace: MicroBatchTrace, names: Mapping[int, str]) -> None:
        super().__init__()
        self._trace, self._names = trace, names
        self._modules: List[str] = [""]

    def modules_followed(self) -> ExitStack:
        """Return a context in which the module that runs is known."""
        return follow_modules(self._enter_module, self._leave_module)

    def _enter_module(self, module: nn.Module, args: Any) -> None:
        around = self._modules[-1]
        name = self._names.get(id(module))
        # a module around the model is none of the user's: it holds the loss
        self._modules.append(name or (around if around or hasattr(module, "loss_of") else LOSS))
        self._trace.enter_module(self._modules[-1], args)

    def _leave_module(self, _module: nn.Module, _args: Any, result: Any) -> None:
        if self._modules.pop() == ROOT:
            self._trace.leave_model(flatten_tensors(result))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function and record it."""
        title = str(resolve_name(func) or getattr(func, "__name__", func))
        if title.endswith(("__get__", "__set__", ".backward")):
            return func(*args, **(kwargs or {}))
        origin = Origin(self._modules[-1], caller_place(), title)
        with self._trace.watch(origin):
            result = func(*args, **(kwargs or {}))
        self._trace.take_nodes(flatten_tensors(result), origin)
        return result


# -- the port ----------------------------------------------------------------------------------------------------------


def replay_call(ported: Any, rehearsal: Rehearsal) -> List[StepTrace]:
    """Replay a call of the port `ported` on a copy of the simulator's device; see `trace_ported_call`."""
    model = ported.port.model
    paths = [prefix[:-1] for prefix, _module in walk_modules(model)]
    return trace_ported_call(rehearsal, model_name=type(model).__name__, module_paths=paths)


def trace_ported_call(rehearsal: Rehearsal, *, model_name: str, module_paths: Iterable[str]) -> List[StepTrace]:
    """Replay a call on a copy of the simulator's device and return all that arises in each of its optimizer steps.

    The rehearsal is used up. `model_name` is what the capture calls the model itself, `module_paths` are the names of
    its modules.
    """
    watch = _PortedWatch(rehearsal, model_name, frozenset(module_paths))
    executable = ReplayExecutable(
        rehearsal.graph, observer=watch, watch_operator=watch.watch_operator, find_call=find_direct_call
    )
    executable.run(
        rehearsal.state, rehearsal.inputs, rehearsal.plan, groups=rehearsal.groups, group_names=rehearsal.group_names
    )
    return watch.end_call()


class _PortedWatch:
    """Watches the operators, the backward passes and the updates of a replay."""

    def __init__(self, rehearsal: Rehearsal, model_name: str, module_paths: frozenset) -> None:
        self.steps: List[StepTrace] = []
        self._rehearsal, self._model_name, self._module_paths = rehearsal, model_name, module_paths
        self._parameter_names = {id(tensor): name for name, tensor in rehearsal.state.parameters.items()}
        self._is_forward = True
        self._step = StepTrace(before=_read_device_state(rehearsal.state))
        self._trace = MicroBatchTrace(self._parameter_names)

    def watch_operator(self, node: torch.fx.Node, call: Call) -> Callable[..., Any]:
        """Return a function that calls the operator and records it."""
        path = str(node.meta.get("module_path", ""))
        origin = Origin(
            self._find_module(path), node.meta.get("place"), str(node.meta.get("operator", str(node.target)))
        )
        function = call.function

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._is_forward:
                return function(*args, **kwargs)
            with self._trace.watch(origin):
                result = function(*args, **kwargs)
            self._trace.take_nodes(flatten_tensors(result), origin)
            return result

        return run

    def _find_module(self, path: str) -> str:
        if path == self._model_name:
            return ROOT
        return path if not path or path in self._module_paths else LOSS

    def after_forward(self, results: Sequence[torch.Tensor], state: Any, micro_batch: Any) -> None:
        """Keep the loss, or the last output where there is none; without a backward pass the micro-batch ends here."""
        graph = self._rehearsal.graph
        self._trace.end_forward(results[-1])
        if not (graph.has_loss and graph.loss_has_gradient):
            self._step.micro_batches.append(self._trace)
            self._step.seeds.append(1.0)
            self._trace = MicroBatchTrace(self._parameter_names)

    def during_backward(self, backward: Callable[[], None], state: Any, micro_batch: Any) -> None:
        """Run the backward pass of a micro-batch, keeping its gradients apart."""
        self._is_forward = False
        seed = self._find_scaling(state) * self._rehearsal.plan.backward_scale
        try:
            own = _run_backward_apart(state.parameters, backward)
        finally:
            self._is_forward = True
        self._trace.forget_graph()
        self._step.own_gradients.append({name: gradient.float() / seed for name, gradient in own.items()})
        self._step.micro_batches.append(self._trace)
        self._step.seeds.append(seed)
        self._trace = MicroBatchTrace(self._parameter_names)
        factor = self._rehearsal.plan.update_scale / self._find_scaling(state)
        self._step.gradients = {
            name: keep_part(parameter.grad).float() * factor
            for name, parameter in state.parameters.items()
            if parameter.grad is not None
        }

    def _find_scaling(self, state: Any) -> float:
        scaling = float(self._rehearsal.groups[0].loss_scaling) if self._rehearsal.groups else 1.0
        return scaling if state.loss_scale_factor is None else scaling * float(state.loss_scale_factor)

    def after_update(self, state: Any) -> None:
        """End a step."""
        self._step.after = _read_device_state(state)
        self.steps.append(self._step)
        self._step = StepTrace(before=self._step.after)

    def end_call(self) -> List[StepTrace]:
        """Return the steps; a call that does not train is one."""
        return self.steps or [self._step]


def _read_device_state(state: Any) -> StateParts:
    return StateParts(
        {name: keep_part(parameter) for name, parameter in state.parameters.items()},
        {name: keep_part(buffer) for name, buffer in state.buffers[0].items()},
        {name: {slot: keep_part(value) for slot, value in slots.items()} for name, slots in state.slots.items()},
    )
