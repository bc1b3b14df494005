"""A training in plain PyTorch: model, loss and optimizer, whose steps are made of micro-batches as a device's are."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.adapters import LossInForward
from porting.structure import map_tensors

__all__ = ["MicroBatch", "PlainRun", "PlainStep", "PlainTraining"]

MicroBatch = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""Positional and keyword arguments of a training call."""


@dataclass(frozen=True)
class PlainTraining:
    """What a loop in plain PyTorch trains.

    `loss`, `label`, `label_transform`, `loss_output` and `reduction` mean what they mean for `to_ipu`. `compute_loss`
    takes the place of all of them: a function of the model and a batch's arguments that returns the loss, as in one's
    own script. `accumulated` says how the gradients of a step's micro-batches are joined, whatever the port's options
    say: "mean", as if the step were one batch, or "sum". `scheduler` is stepped after every call, as the port's is.

    >>> model = nn.Linear(2, 1)
    >>> PlainTraining(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1)).label
    -1
    """

    model: nn.Module
    loss: Any
    optimizer: torch.optim.Optimizer
    scheduler: Any = None
    label: Any = -1
    label_transform: Optional[Callable[[Any], Any]] = None
    loss_output: Any = None
    reduction: Optional[str] = None
    accumulated: str = "mean"
    compute_loss: Optional[Callable[..., torch.Tensor]] = None


class PlainStep(NamedTuple):
    """The losses of an optimizer step's micro-batches, and the gradients that its update used, by parameter."""

    losses: List[torch.Tensor]
    gradients: Dict[str, torch.Tensor]


@dataclass
class PlainRun:
    """A plain training that goes on: its random stream, and the buffers of each replica that it stands for."""

    training: PlainTraining
    num_replicas: int
    random_state: torch.Tensor
    _loss_of: Callable[..., torch.Tensor] = field(init=False)
    _buffers: List[Dict[str, torch.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        """Make the function that computes the loss."""
        self._loss_of = _loss_function(self.training)
        self._buffers = [_copied_buffers(self.training.model) for _ in range(self.num_replicas)]

    def step(self, micro_batches: Sequence[MicroBatch]) -> PlainStep:
        """Make one optimizer step of `micro_batches`, which lie as [accumulation][replica].

        Numbers are drawn from this training's own random stream; the host's goes on as if nothing had been drawn.
        """
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random_state)
            step = self._step(micro_batches)
            self.random_state = torch.get_rng_state()
        return step

    def _step(self, micro_batches: Sequence[MicroBatch]) -> PlainStep:
        training, losses = self.training, []
        scale = 1.0 / len(micro_batches) if training.accumulated == "mean" else 1.0
        training.optimizer.zero_grad(set_to_none=True)
        for number, (args, kwargs) in enumerate(micro_batches):
            with _ReplicaBuffers(training.model, self._buffers, number % self.num_replicas):
                loss = self._loss_of(*args, **kwargs)
                (loss * scale).backward()
            losses.append(loss.detach().clone())
        named = training.model.named_parameters()
        gradients = {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}
        training.optimizer.step()
        return PlainStep(losses, gradients)


class _ReplicaBuffers:
    """Gives the model the buffers of one replica; outside of it, it has those of the first."""

    def __init__(self, model: nn.Module, kept: List[Dict[str, torch.Tensor]], replica: int) -> None:
        self._model, self._kept, self._replica = model, kept, replica

    def __enter__(self) -> None:
        if self._replica:
            self._kept[0] = _copied_buffers(self._model)
            _write_buffers(self._model, self._kept[self._replica])

    def __exit__(self, *_error: object) -> None:
        if self._replica:
            self._kept[self._replica] = _copied_buffers(self._model)
            _write_buffers(self._model, self._kept[0])


def cut_micro_batches(args: Sequence[Any], kwargs: Mapping[str, Any], num_parts: int) -> List[MicroBatch]:
    """Cut the rows of a combined batch into micro-batches; what is no tensor with rows goes to all of them.

    >>> [args for args, _kwargs in cut_micro_batches([torch.arange(4), 7], {}, 2)]
    [(tensor([0, 1]), 7), (tensor([2, 3]), 7)]
    """
    return [_cut_part(args, kwargs, number, num_parts) for number in range(num_parts)]


def _cut_part(args: Sequence[Any], kwargs: Mapping[str, Any], number: int, num_parts: int) -> MicroBatch:
    def rows_of(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if tensor.dim() == 0 else tensor.chunk(num_parts)[number]

    return map_tensors(rows_of, tuple(args)), map_tensors(rows_of, dict(kwargs))


def _loss_function(training: PlainTraining) -> Callable[..., torch.Tensor]:
    if training.compute_loss is not None:
        own, model = training.compute_loss, training.model
        return lambda *args, **kwargs: own(model, *args, **kwargs)
    host = SimpleNamespace(identity_loss=_reduce, isRunningOnIpu=lambda: False)
    wrapped = LossInForward(
        training.model,
        training.loss,
        backend=host,
        label=training.label,
        label_transform=training.label_transform,
        loss_output=training.loss_output,
        reduction=training.reduction,
    )
    return lambda *args, **kwargs: wrapped.loss_of(wrapped(*args, **kwargs))


def _reduce(loss: torch.Tensor, reduction: str) -> torch.Tensor:
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _copied_buffers(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def _write_buffers(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(values[name])
