"""The search where there is no captured step to replay: a call in plain PyTorch on the host.

That is what can be done about an IPU, which shows no value in between. Each function of torch that `forward` calls is
looked at, then the gradients, then what the optimizer's arithmetic makes of them. Micro-batches run one by one.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from porting.diagnostics import caller_place

from ..structure import flatten_tensors
from ..support.module_hooks import follow_modules
from .gradient_records import GradientRecords
from .not_finite import NotFinite, WatchedOperator
from .operator_records import NamedValue, OperatorRecords
from .update_records import UpdateRecords

__all__ = ["HostTraining", "find_not_finite_on_host"]

MicroBatch = Tuple[Sequence[Any], Mapping[str, Any]]
"""The arguments of a call of the model."""


@dataclass(frozen=True)
class HostTraining:
    """The rest of a step behind the model's forward pass.

    `find_loss` takes the loss out of what the model returns, and `seed` is the gradient that its backward pass begins
    with. `update(parameters)` makes the optimizer's step in place, from `.grad`, which it clears. `groups` are the
    optimizer's settings, `group_names` the parameters of each group, and `slots` its state, which the updates change.
    """

    find_loss: Callable[[Any], torch.Tensor]
    update: Callable[[Mapping[str, torch.Tensor]], None]
    groups: Sequence[Any]
    group_names: Sequence[Sequence[str]]
    slots: Mapping[str, Mapping[str, torch.Tensor]]
    seed: float = 1.0


def find_not_finite_on_host(
    model: nn.Module,
    steps: Sequence[Sequence[MicroBatch]],
    *,
    names: Sequence[Tuple[str, nn.Module]],
    values: Mapping[str, torch.Tensor],
    training: Optional[HostTraining] = None,
) -> Optional[NotFinite]:
    """Run `model` on copies of the weights and buffers `values` and return the first value that is not finite, or None.

    `steps` has the micro-batches of each optimizer step, `names` are the modules by the names that the user knows.
    Without `training` there is no backward pass and no update. Nothing of the model changes, and no generator.
    """
    search = _Search(model, {id(module): name for name, module in names}, values, training)
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(training is not None):
        for number, step in enumerate(steps, 1):
            for micro_number, micro_batch in enumerate(step, 1):
                fault = search.run_micro_batch(micro_batch)
                if fault is not None:
                    return fault.replace(step=number, micro_batch=micro_number)
            fault = search.update()
            if fault is not None:
                return fault.replace(step=number, micro_batch=len(step))
    return None


class _Search:
    """The weights, buffers and gradients of a search, and what is known of its updates."""

    def __init__(
        self,
        model: nn.Module,
        module_names: Mapping[int, str],
        values: Mapping[str, torch.Tensor],
        training: Optional[HostTraining],
    ) -> None:
        self._model, self._module_names, self._training = model, module_names, training
        self._copies = {name: value.detach().clone() for name, value in values.items()}
        # in the model's order, in which the device has them too
        trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
        self._trained = {name: self._copies[name] for name in trainable if name in self._copies}
        for tensor in self._trained.values():
            tensor.requires_grad_(training is not None)
        self._updates = None if training is None else self._begin_updates(training)

    def _begin_updates(self, training: HostTraining) -> UpdateRecords:
        return UpdateRecords(training.groups, training.group_names, parameters=self._trained, slots=training.slots)

    def run_micro_batch(self, micro_batch: MicroBatch) -> Optional[NotFinite]:
        """Run the passes of one micro-batch, and return what they made not finite."""
        args, kwargs = micro_batch
        watch = _FunctionWatch(self._module_names)
        for name, value in self._copies.items():
            watch.name(value, name, "parameter" if name in self._trained else "buffer")
        for index, tensor in enumerate(flatten_tensors((args, dict(kwargs)))):
            watch.name(tensor, f"input_{index}", "input")
        with watch.modules_followed(), watch:
            returned = torch.func.functional_call(self._model, self._copies, tuple(args), dict(kwargs))
            loss = None if self._training is None else self._training.find_loss(returned)
        if self._training is None or loss is None:
            outputs = enumerate(flatten_tensors(returned))
            faults = (watch.operators.find(f"output {index}", tensor, allows_meant=True) for index, tensor in outputs)
            return next((fault for fault in faults if fault is not None), None)
        fault = watch.operators.find("loss", loss)
        if fault is None:
            (loss.sum() * self._training.seed).backward()
            faults = (watch.derivatives.find(name, tensor) for name, tensor in self._trained.items())
            fault = next((found for found in faults if found is not None), None)
        return fault

    def update(self) -> Optional[NotFinite]:
        """Make the optimizer's step, and return what it made not finite."""
        if self._training is None or self._updates is None:
            return None
        for name, tensor in self._trained.items():
            if tensor.grad is not None:
                self._updates.note_gradient(name, tensor.grad)
        self._training.update(self._trained)
        return self._updates.end_update(self._trained, self._training.slots)


class _FunctionWatch(TorchFunctionMode):
    """Looks at what goes into each function of torch and comes out of it."""

    def __init__(self, module_names: Mapping[int, str]) -> None:
        super().__init__()
        self.operators, self.derivatives = OperatorRecords(), GradientRecords()
        self._module_names = module_names
        self._modules: List[str] = []
        # tensors that are known by a name stay alive, so that no other has the same identity
        self._named: Dict[int, NamedValue] = {}

    def name(self, tensor: torch.Tensor, name: str, kind: str) -> None:
        """Let `tensor` be known by a name."""
        self._named[id(tensor)] = NamedValue(name, tensor, kind)

    def modules_followed(self) -> ExitStack:
        """Return a context in which the module that runs is known."""
        return follow_modules(self._enter_module, self._leave_module)

    def _enter_module(self, module: nn.Module, _args: Any) -> None:
        self._modules.append(self._module_names.get(id(module), self._modules[-1] if self._modules else ""))

    def _leave_module(self, _module: nn.Module, _args: Any, _result: Any) -> None:
        self._modules.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function and look at it."""
        kwargs = kwargs or {}
        tensors = flatten_tensors((args, kwargs))
        inputs = [
            self._named.get(id(tensor), NamedValue(f"argument {index}", tensor)) for index, tensor in enumerate(tensors)
        ]
        ranges = self.operators.begin(inputs)
        result = func(*args, **kwargs)
        results = flatten_tensors(result)
        if results:
            title = str(resolve_name(func) or getattr(func, "__name__", func))
            operator = WatchedOperator(title, self._modules[-1] if self._modules else "", caller_place())
            written = [(value.name, value.tensor) for value in inputs if value.kind == "buffer"]
            self.operators.end(operator, inputs, ranges, [*((title, tensor) for tensor in results), *written])
            self.derivatives.take_over(operator, ranges, results)
        return result
