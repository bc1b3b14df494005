"""The search where there is no captured step to replay: a call in plain PyTorch on the host.

That is what can be done about an IPU, which shows no value in between. Each function of torch that `forward` calls is
looked at, then the gradients, then what the optimizer's arithmetic makes of them. Micro-batches run one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.observe.plain_functions import KnownTensors, watch_functions
from porting.observe.watcher import BackwardPass, ForwardResults, NamedValue, StepState
from porting.structure import flatten_tensors

from .not_finite import NotFinite
from .search import NotFiniteSearch

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
    run = _HostRun(model, {id(module): name for name, module in names}, values, training)
    with torch.random.fork_rng(devices=[]), torch.set_grad_enabled(training is not None):
        return run.search.find(lambda: run.run_steps(steps))


class _HostRun:
    """The weights and buffers of a run, which are copies, and the search that is told of it."""

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
        groups, group_names = ((), ()) if training is None else (training.groups, training.group_names)
        self.search = NotFiniteSearch(groups, group_names, self._read_state())

    def run_steps(self, steps: Sequence[Sequence[MicroBatch]]) -> None:
        """Run all steps."""
        for step in steps:
            for micro_batch in step:
                self._run_passes(micro_batch)
            if self._training is not None:
                self._training.update(self._trained)
            self.search.end_update(self._read_state())

    def _run_passes(self, micro_batch: MicroBatch) -> None:
        args, kwargs = tuple(micro_batch[0]), dict(micro_batch[1])
        entering = enumerate(flatten_tensors((args, kwargs)))
        known = [NamedValue(name, one, self._name_kind(name)) for name, one in self._copies.items()]
        known += [NamedValue(f"input_{index}", tensor, "input") for index, tensor in entering]
        training = self._training

        def run() -> Any:
            returned = torch.func.functional_call(self._model, self._copies, args, kwargs)
            return returned if training is None else training.find_loss(returned)

        made = watch_functions(run, self.search, find_path=self._find_path, known=KnownTensors(known))
        if training is None:
            self.search.end_forward(ForwardResults(outputs=flatten_tensors(made), has_backward=False))
            return
        self.search.end_forward(ForwardResults(made))
        backward = (made.sum() * training.seed).backward
        self.search.run_backward(BackwardPass(backward, self._trained, training.seed))

    def _name_kind(self, name: str) -> str:
        return "parameter" if name in self._trained else "buffer"

    def _find_path(self, module: nn.Module, around: str, _args: object) -> str:
        return self._module_names.get(id(module), around)

    def _read_state(self) -> StepState:
        return StepState() if self._training is None else StepState(self._trained, slots=self._training.slots)
