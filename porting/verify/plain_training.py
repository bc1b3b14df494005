"""Train in plain PyTorch, in steps that are made of micro-batches as a device's are.

The plain side of a proof is such a training.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

import torch
from torch import nn

from porting.options import PortOptions
from porting.structure import map_tensors
from porting.verify.calls import MicroBatch
from porting.verify.reference_loss import make_loss_function

__all__ = ["Grouping", "MicroBatch", "PlainRun", "PlainStep", "PlainTraining"]

_Tensors = Dict[str, torch.Tensor]


@dataclass(frozen=True)
class PlainTraining:
    """What a loop in plain PyTorch trains.

    `loss`, `label`, `label_transform`, `loss_output` and `reduction` mean what they mean for `to_ipu`. `compute_loss`
    takes the place of all of them: a function of the model and a batch's arguments that returns the loss, as in one's
    own script. `max_grad_norm` clips the norm of all gradients before each update. `accumulated` says how the
    gradients of a step's micro-batches are joined, whatever the port's options say: "mean", as if the step were one
    batch, or "sum".

    `scheduler` is stepped as `schedule_every` says: after each optimizer "step", each "call" of the port, or each
    "epoch" of the loader. `each_epoch(model, optimizer, epoch)` is called after each epoch, counted from 1.
    `also(model)` makes state that the loop keeps, such as a moving average: an object with `update(model)`, which is
    called after each step, and `state_dict()`, which is compared. All of these go to the port's loop as well.

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
    max_grad_norm: Optional[float] = None
    schedule_every: str = "step"
    each_epoch: Optional[Callable[[nn.Module, Any, int], None]] = None
    also: Optional[Callable[[nn.Module], Any]] = None


class PlainStep(NamedTuple):
    """The losses of an optimizer step's micro-batches, and the gradients that its update used, by parameter."""

    losses: List[torch.Tensor]
    gradients: Dict[str, torch.Tensor]


RunPasses = Callable[[Callable[[], torch.Tensor], float], torch.Tensor]


def run_both_passes(compute_loss: Callable[[], torch.Tensor], scale: float) -> torch.Tensor:
    """Compute the loss of a micro-batch, add the gradients of `scale` times the loss to `.grad`, and return it."""
    loss = compute_loss()
    (loss * scale).backward()
    return loss


@dataclass
class PlainRun:
    """A plain training that goes on: its random stream, and the buffers of each replica that it stands for."""

    training: PlainTraining
    num_replicas: int
    random_state: torch.Tensor
    loss_of: Callable[..., torch.Tensor] = field(init=False)
    _buffers: List[Dict[str, torch.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        """Make the function that computes the loss."""
        self.loss_of = make_loss_function(self.training)
        self._buffers = [_copy_buffers(self.training.model) for _ in range(self.num_replicas)]

    def step(
        self,
        micro_batches: Sequence[MicroBatch],
        *,
        look: Optional[Callable[[_Tensors], None]] = None,
        run_passes: RunPasses = run_both_passes,
    ) -> PlainStep:
        """Make one optimizer step of `micro_batches`, which lie as [accumulation][replica].

        Numbers are drawn from this training's own random stream; the host's goes on as if nothing had been drawn.
        `look` is shown the gradients as they are before the update; without it, copies of them are returned.
        `run_passes` runs the passes of a micro-batch: given what computes its loss, and what the loss is multiplied by
        before the backward pass, it returns the loss.
        """
        training, losses = self.training, []
        scale = 1.0 / len(micro_batches) if training.accumulated == "mean" else 1.0
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random_state)
            training.optimizer.zero_grad(set_to_none=True)
            for number, (args, kwargs) in enumerate(micro_batches):
                with self._use_buffers(number % self.num_replicas):
                    loss = run_passes(partial(self.loss_of, *args, **kwargs), scale)
                losses.append(loss.detach().clone())
            weights = training.model.named_parameters()
            gradients = {name: weight.grad for name, weight in weights if weight.grad is not None}
            if look is not None:
                look(gradients)
                gradients = {}
            gradients = {name: gradient.clone() for name, gradient in gradients.items()}
            if training.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(training.model.parameters(), training.max_grad_norm)
            training.optimizer.step()
            self.random_state = torch.get_rng_state()
        return PlainStep(losses, gradients)

    @contextmanager
    def _use_buffers(self, replica: int) -> Iterator[None]:
        """Give the model the buffers of one replica; outside of it, it has those of the first."""
        if not replica:
            yield
            return
        model = self.training.model
        self._buffers[0] = _copy_buffers(model)
        _write_buffers(model, self._buffers[replica])
        try:
            yield
        finally:
            self._buffers[replica] = _copy_buffers(model)
            _write_buffers(model, self._buffers[0])


@dataclass(frozen=True)
class Grouping:
    """How the rows of a call become optimizer steps; with `is_large`, each step is one batch on the plain side."""

    steps_per_call: int
    micro_batches_per_step: int
    replicas: int
    is_large: bool = False

    @property
    def num_buffers(self) -> int:
        """How many replicas keep buffers of their own on the plain side."""
        return 1 if self.is_large else self.replicas

    @classmethod
    def of(cls, options: PortOptions) -> Grouping:
        """Return how a port with these options makes its steps."""
        return cls(options.device_iterations, options.accumulation * options.replicas, options.replicas)

    def cut(self, batch: MicroBatch) -> List[List[MicroBatch]]:
        """Cut a call's batch into its steps, and these into micro-batches.

        >>> steps = Grouping(steps_per_call=2, micro_batches_per_step=3, replicas=1).cut(((torch.arange(6),), {}))
        >>> [len(step) for step in steps]
        [3, 3]
        """
        size = 1 if self.is_large else self.micro_batches_per_step
        parts = cut_micro_batches(*batch, self.steps_per_call * size)
        return [parts[start : start + size] for start in range(0, len(parts), size)]


def cut_micro_batches(args: Sequence[Any], kwargs: Mapping[str, Any], num_parts: int) -> List[MicroBatch]:
    """Cut the rows of a combined batch into micro-batches; what is no tensor with rows goes to all of them.

    >>> [args for args, _kwargs in cut_micro_batches([torch.arange(4), 7], {}, 2)]
    [(tensor([0, 1]), 7), (tensor([2, 3]), 7)]
    """

    def cut_rows(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda tensor: tensor.chunk(num_parts)[number] if tensor.dim() else tensor

    cuts = map(cut_rows, range(num_parts))
    return [(map_tensors(cut, tuple(args)), map_tensors(cut, dict(kwargs))) for cut in cuts]


def _copy_buffers(model: nn.Module) -> Dict[str, torch.Tensor]:
    return {name: buffer.detach().clone() for name, buffer in model.named_buffers()}


def _write_buffers(model: nn.Module, values: Mapping[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            buffer.copy_(values[name])
