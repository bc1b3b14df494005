"""Run a training program as it is, and observe from outside what each of its optimizers does, step by step.

Notes are taken around functions of torch and of PopTorch. Nothing of the program changes but where its models draw
random numbers: from a stream of their own, so that a device draws what plain PyTorch draws.
"""

from __future__ import annotations

import importlib
import re
from contextlib import contextmanager, nullcontext
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

import torch
from torch import nn

from porting.comparison.sketches import Sketch, make_sketch
from porting.diagnostics import Place, caller_place
from porting.observe.training_programs import Run, Tensors, watch_calls, watch_program
from porting.structure import flatten_tensors, map_tensors
from porting.verify.observation import Observation, ObservedTraining, Task
from porting.verify.optimizer_settings import Settings, read_settings
from porting.verify.plain_runs import join_outputs
from porting.verify.records import Record, name_optimizer_state

__all__ = ["EnoughStepsError", "ProgramObserver"]

_Named = Sequence[Tuple[str, torch.Tensor]]
_GRADIENT, _FLOATS = "Gradient___", "floating point"
# PopTorch's numbers of the output modes that return the last losses, and all
_LAST, _ALL = (0, 4), 2
_UNKNOWN_ANCHOR = re.compile(r"Anchor tensor `(\S+)' not in")
# each is found by compiling once more
_MOST_WITHOUT_GRADIENT = 6


class _Executor(Protocol):
    """What is looked at of an executor of PopTorch's."""

    model: nn.Module
    options: Any
    _training: bool
    _optimizer: object

    def copyWeightsToHostIfNeeded(self) -> None:  # noqa: N802 - the vendor's spelling
        """Bring the weights of the device to `model`."""

    def isCompiled(self) -> bool:  # noqa: N802 - the vendor's spelling
        """Tell whether there is an executable."""

    def compile(self, *args: object, **kwargs: object) -> None:
        """Compile for a batch."""

    def getAnchoredTensor(self, name: str) -> torch.Tensor:  # noqa: N802 - the vendor's spelling
        """Return what the last call has kept of a tensor."""


class EnoughStepsError(BaseException):
    """Ends a script whose steps are recorded; no `except Exception` of its own catches it."""


class ProgramObserver:
    """Takes notes in one process; `_depth` counts the models, devices and backward passes that are being run."""

    def __init__(self, task: Task) -> None:
        """Begin an observation of what `task` runs."""
        self.observation = Observation()
        self.is_noting = False
        self._task = task
        self._trainings: Dict[int, Tuple[Any, ObservedTraining, nn.Module]] = {}
        self._modules: Dict[int, nn.Module] = {}
        self._first: Dict[int, Sketch] = {}
        self._handed: Dict[int, Tuple[List[float], Settings]] = {}
        self._depth, self._is_stepping, self._is_evaluating = 0, False, False
        self._stream = torch.Generator().manual_seed(task.seed).get_state()
        self._evaluated: List[Any] = []
        self._forget_step()

    def _forget_step(self) -> None:
        self._inputs: List[Tuple[nn.Module, Any]] = []
        self._losses: List[float] = []
        self._outputs: List[Any] = []
        self._loss_place: Optional[Place] = None
        self._draws = self._uses_device = False
        self._norm: Optional[float] = None
        self._unclipped: Dict[int, torch.Tensor] = {}

    def install(self) -> None:
        """Take notes of all that trains in this process from now on."""
        watch_program(self)
        if self._task.is_port:
            executor = importlib.import_module("poptorch").PoplarExecutor
            watch_calls(executor, "__call__", self._call_device)
            watch_calls(executor, "compile", self._compile_device)
            watch_calls(executor, "setOptimizer", self._hand_over)

    # -- what the program calls ----------------------------------------------------------------------------------------

    def call_module(self, run: Run, module: nn.Module, *args: object, **kwargs: object) -> Any:
        """Run a model, and note what it was given; of an evaluation what it returns."""
        if self._depth or next(module.parameters(), None) is None:
            return run(module, *args, **kwargs)
        if hasattr(type(module), "_porting_model"):  # a port looks at its own step, which the program does not call
            with self._deeper_calls(rounds=False):
                return run(module, *args, **kwargs)
        if not torch.is_grad_enabled():
            return self._run_evaluation(run, module, *args, **kwargs)
        if id(module) not in self._modules:
            self._begin_module(module)
        self._inputs.append((module, [*map(_number_rows, flatten_tensors((args, kwargs)))]))
        with self._deeper_calls(), self._own_stream():
            returned = run(module, *args, **kwargs)
        self._keep_outputs(returned)
        return returned

    def _keep_outputs(self, returned: object) -> None:
        """Keep what a model returns before the first step of all."""
        if not self.observation.trainings:
            self._outputs.append(_copy_tensors(returned))

    def _begin_module(self, module: nn.Module) -> None:
        """Keep the weights that a model begins with, which differ in their last bits in a run of another rounding."""
        self._task.perturbation.change(module)
        self._modules[id(module)] = module
        self._keep_first(module)

    def _keep_first(self, module: nn.Module) -> None:
        for parameter in module.parameters():
            if not nn.parameter.is_lazy(parameter):
                self._first.setdefault(id(parameter), make_sketch(parameter))

    def run_backward(self, run: Run, tensors: Tensors, *args: object, **kwargs: object) -> Any:
        """Run a backward pass, and note its loss."""
        if not self._depth:
            losses = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            self._losses.append(sum(float(loss.detach().double().sum()) for loss in losses))
            self._loss_place = caller_place()
        with self._deeper_calls():
            return run(tensors, *args, **kwargs)

    def clip_gradients(self, run: Run, parameters: Tensors, max_norm: float, *args: object, **kwargs: object) -> Any:
        """Clip gradients, and keep them as they were."""
        owners = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        self._norm = float(max_norm)
        self._unclipped.update((id(one), one.grad.detach().clone()) for one in owners if one.grad is not None)
        return run(owners, max_norm, *args, **kwargs)

    def make_step(self, run: Run, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> Any:
        """Make a step, and note what it was made of and what it has left."""
        if self._is_stepping or self._depth:
            return run(optimizer, *args, **kwargs)
        self._end_script(id(optimizer))
        self._is_stepping = True
        try:
            with self._task.perturbation.round_step(len(self._losses)):
                result = run(optimizer, *args, **kwargs)
        finally:
            self._is_stepping = False
        # a step on the host of what a device trains finds no gradients, and does nothing
        if any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"]):
            self._note_whole(self._note_step, optimizer)
        return result

    def _call_device(self, run: Run, executor: _Executor, *args: object, **kwargs: object) -> Any:
        self._uses_device |= not self._is_evaluating
        if self._depth:
            return run(executor, *args, **kwargs)
        if not executor._training:
            return self._run_evaluation(run, executor, *args, **kwargs)
        if self._task.anchors_gradients and not executor.isCompiled():
            executor.compile(*args, **kwargs)
        # executors of several shapes train one model
        if id(executor.model) not in self._trainings:
            self._keep_first(executor.model)
            self._begin_training(executor.model, executor.model).is_on_device = True
        self._end_script(id(executor.model))
        with self._deeper_calls(), self._own_stream():
            returned = run(executor, *args, **kwargs)
        executor.copyWeightsToHostIfNeeded()
        if not any(training.rows for training in self.observation.trainings):
            self._outputs.append(_copy_tensors(returned))
        self._note_whole(self._note_call, executor, [*map(_number_rows, flatten_tensors((args, kwargs)))], returned)
        return returned

    def _hand_over(self, run: Run, executor: _Executor, optimizer: torch.optim.Optimizer) -> Any:
        result = run(executor, optimizer)
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        self._handed[id(executor.model)] = rates, read_settings(optimizer, executor.model.named_parameters())
        return result

    def _run_evaluation(self, run: Run, *args: object, **kwargs: object) -> Any:
        self._is_evaluating = True
        with self._deeper_calls(rounds=False):
            returned = run(*args, **kwargs)
        self._is_evaluating = False
        self._evaluated.append(_copy_tensors(returned))
        return returned

    def _compile_device(self, run: Run, executor: _Executor, *args: object, **kwargs: object) -> Any:
        """Compile, with gradients that are kept if they are asked for: of parameters that have one."""
        with self._deeper_calls(rounds=False):
            if not self._task.anchors_gradients or not executor._training or executor.isCompiled():
                return run(executor, *args, **kwargs)
            anchored = executor.options.anchored_tensors
            for names in _iter_anchors([name for name, one in executor.model.named_parameters() if one.requires_grad]):
                anchored.update({_GRADIENT + name: [_GRADIENT + name, False, _ALL, 1] for name in names})
                for _trial in range(_MOST_WITHOUT_GRADIENT):
                    try:
                        return run(executor, *args, **kwargs)
                    except Exception as error:
                        unknown = _UNKNOWN_ANCHOR.search(str(error))
                        if unknown is None or anchored.pop(unknown[1], None) is None:
                            raise
                        if not any(_GRADIENT + name in anchored for name in names):
                            break  # none is called so
                for name in names:
                    anchored.pop(_GRADIENT + name, None)
            return run(executor, *args, **kwargs)

    # -- notes ---------------------------------------------------------------------------------------------------------

    def _note_whole(self, note: Callable[..., None], *args: object) -> None:
        """Take notes of a step, which are whole or not at all: who ends the script waits for that."""
        self.is_noting = True
        note(*args)
        self.is_noting = False

    def _note_step(self, optimizer: torch.optim.Optimizer) -> None:
        if id(optimizer) not in self._trainings:
            self._begin_host_training(optimizer)
        self.keep_evaluation()
        _optimizer, training, model = self._trainings[id(optimizer)]
        record, step = training.record, training.record.num_steps + 1
        named = [*model.named_parameters()]
        # what is trained is their sum, whatever each was divided by
        record.losses[step] = [loss * len(self._losses) for loss in self._losses]
        record.rates[step] = [float(group["lr"]) for group in optimizer.param_groups]
        self._keep_settings(training, step, read_settings(optimizer, named, self._norm), named)
        gradients = ((name, self._unclipped.get(id(one), one.grad)) for name, one in named)
        record.keep("gradient", step, {name: gradient for name, gradient in gradients if gradient is not None})
        record.keep_state(step, model, name_optimizer_state(optimizer.state_dict(), optimizer, model))
        training.micro_batches = max(1, len(self._losses))
        # of the first model alone
        rows = [rows for module, rows in self._inputs if module is self._inputs[0][0]]
        self._note_rest(training, step, [torch.cat(parts) for parts in zip(*rows)])

    def _note_call(self, executor: _Executor, rows: List[torch.Tensor], returned: object) -> None:
        self.keep_evaluation()
        _owner, training, model = self._trainings[id(executor.model)]
        record, options = training.record, executor.options
        per_call, first = options.device_iterations, training.record.num_steps + 1
        size = options.Training.gradient_accumulation * options.replication_factor
        is_sum = options.Training.accumulation_and_replication_reduction_type.name == "Sum"
        losses = [loss * (size if is_sum else 1) for loss in _list_losses(executor.model, returned)]
        rates, settings = self._handed[id(executor.model)]
        named = [*model.named_parameters()]
        for number in range(per_call):
            is_told = options.output_mode == _ALL or size * per_call == 1
            record.losses[first + number] = losses[number * size : (number + 1) * size] if is_told else []
            record.rates[first + number] = rates
            self._keep_settings(training, first + number, settings, named)
        step = first + per_call - 1
        if options.output_mode in _LAST:
            record.losses[step] = losses
        factor = (1.0 if is_sum else 1.0 / size) / float(getattr(executor._optimizer, "loss_scaling", 1.0))
        anchored = {
            name: executor.getAnchoredTensor(_GRADIENT + name).reshape(-1, *one.shape)
            for whole, one in named
            for name in [_name_anchor(whole, options.anchored_tensors)]
            if name
        }
        # where they are clipped there is one for all micro-batches, which is not theirs
        gradients = {name: factor * one[-size:].sum(0) for name, one in anchored.items() if len(one) >= size}
        if gradients:
            record.keep("gradient", step, gradients)
        record.keep_state(step, model, {})
        training.micro_batches, training.steps_per_call, self._loss_place = size, per_call, caller_place()
        self._note_rest(training, step, rows)

    def _note_rest(self, training: ObservedTraining, step: int, rows: List[torch.Tensor]) -> None:
        # others are constants on a device, such as BatchNorm's count of batches
        kept = training.record.sketches["buffer", step]
        training.record.sketches["buffer", step] = {n: one for n, one in kept.items() if one.kind == _FLOATS}
        if self._outputs and step == 1:
            training.record.keep("output", 1, join_outputs(self._outputs))
        training.rows[step] = rows
        training.draws |= self._draws
        training.num_device_steps += training.steps_per_call if self._uses_device else 0
        training.places = {"loss": self._loss_place, "update": caller_place()}
        self._forget_step()

    def keep_evaluation(self) -> None:
        """Keep what was evaluated since the last step of the first optimizer."""
        steps = self.observation.trainings[0].record if self.observation.trainings else Record()
        evaluated, self._evaluated = self._evaluated, []
        if evaluated:
            steps.keep("evaluation", steps.num_steps, join_outputs(evaluated))

    def _keep_settings(self, training: ObservedTraining, step: int, settings: Settings, named: _Named) -> None:
        types = {name: one.dtype for name, one in named}
        training.eps = max(torch.finfo(types[name]).eps for name in settings) if settings else training.eps
        training.record.settings[step] = {
            name: {**own, "type": str(types[name]).replace("torch.", "")} for name, own in settings.items()
        }

    def _begin_host_training(self, optimizer: torch.optim.Optimizer) -> None:
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        found = [module for module in self._modules.values() if own & {*map(id, module.parameters())}]
        inner = {id(part) for module in found for part in module.modules() if part is not module}
        outer = [module for module in found if id(module) not in inner]
        self._begin_training(optimizer, outer[0] if len(outer) == 1 else nn.ModuleList(outer))

    def _begin_training(self, owner: object, model: nn.Module) -> ObservedTraining:
        first = {name: self._first[id(one)] for name, one in model.named_parameters() if id(one) in self._first}
        shapes = {name: sketch.shape for name, sketch in first.items()}
        # after a restart the training goes on with another optimizer, and maybe with another model like it
        same = (one for one in self.observation.trainings if one.shapes == shapes)
        training = next(same, None) or ObservedTraining(
            Record(sketches={("parameter", 0): first}, is_exact=self._task.is_exact), shapes
        )
        if not training.record.losses:
            self.observation.trainings.append(training)
        self._trainings[id(owner)] = owner, training, model
        return training

    def _end_script(self, owner: int) -> None:
        """Raise what ends the script before a training makes more steps than asked for."""
        known = self._trainings.get(owner)
        if known is not None and known[1].record.num_steps >= self._task.num_steps:
            raise EnoughStepsError

    # -- contexts ------------------------------------------------------------------------------------------------------

    @contextmanager
    def _deeper_calls(self, *, rounds: bool = True) -> Iterator[None]:
        self._depth += 1
        try:
            is_outermost = rounds and self._depth == 1
            with self._task.perturbation.round_step(len(self._losses)) if is_outermost else nullcontext():
                yield
        finally:
            self._depth -= 1

    @contextmanager
    def _own_stream(self) -> Iterator[None]:
        """Let what a model draws be drawn from a stream of its own, not from that of the loop and its loader."""
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._stream)
            try:
                yield
            finally:
                now = torch.get_rng_state()
                self._draws |= not torch.equal(now, self._stream)
                self._stream = now


def _iter_anchors(names: List[str]) -> Iterator[List[str]]:
    """List the names that the gradients of parameters may have: without what stands before the first dot, or all."""
    inner = [name.partition(".")[2] for name in names]
    if len({name.partition(".")[0] for name in names}) == 1 and all(inner):
        yield inner
    yield names


def _name_anchor(name: str, anchored: Mapping[str, object]) -> str:
    """Return the name by which a parameter's gradient is kept: its own, or that without a wrapper's; none without."""
    return next((one for one in (name, name.partition(".")[2]) if _GRADIENT + one in anchored), "")


def _copy_tensors(returned: object) -> Any:
    return map_tensors(lambda tensor: tensor.detach().clone(), returned)


def _number_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return a number for each row of a tensor, which tells it from others."""
    rows = tensor.detach().cpu().double().reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    weights = torch.rand(rows.shape[1], generator=torch.Generator().manual_seed(rows.shape[1]), dtype=torch.float64)
    return rows @ (weights + 0.5)


def _list_losses(model: nn.Module, returned: object) -> List[float]:
    """Return the losses among what a device call has returned: where a port says, else the last of the shortest.

    A port may return metrics and single terms behind the loss, which are as short.
    """
    is_port = isinstance(getattr(type(model), "loss_of", None), property)
    results = flatten_tensors(model.loss_of(returned) if is_port else returned)  # type: ignore[operator]
    flat = [one for one in results if one.is_floating_point() and one.dim() <= 1]
    least = min((one.numel() for one in flat), default=0)
    chosen = [one for one in flat if one.numel() == least]
    return [float(loss) for loss in chosen[-1].detach().double().reshape(-1)] if chosen else []
