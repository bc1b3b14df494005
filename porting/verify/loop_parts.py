"""Do what a loop does besides its steps: it steps a schedule, keeps state and changes things after an epoch.

Both sides of a proof go through this file, so that the port's loop and the plain one are asked to do the same.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from porting.diagnostics import PortingError, say_kind

__all__ = ["PACES", "LoopState", "LoopWork", "step_schedule"]

PACES = ("step", "call", "epoch")
"""When a schedule is stepped: after each optimizer step, after each call of the port, or after each epoch."""


class LoopState:
    """State that a loop keeps beside a model, such as a moving average of its weights.

    `made` is what the user's `also(model)` returned: an object that `update_parameters(model)` or `update(model)`
    brings forward after a step, as `torch.optim.swa_utils.AveragedModel` does, and whose `state_dict()` is compared.
    """

    def __init__(self, made: Any, model: nn.Module) -> None:
        """Find how it is brought forward; PortingError V002 for an object that cannot be."""
        self._made, self._model = made, model
        self._update = getattr(made, "update_parameters", None) or getattr(made, "update", None)
        if self._update is None or not hasattr(made, "state_dict"):
            fault = f"`also` gives {say_kind(made)}, which has no `update(model)` or no `state_dict()`"
            help = "return an object with both, such as a `torch.optim.swa_utils.AveragedModel`"
            raise PortingError.at_caller("V002", message=fault, help=help)

    def update(self) -> None:
        """Bring it forward by one step."""
        assert self._update is not None
        self._update(self._model)

    def name_tensors(self) -> Dict[str, torch.Tensor]:
        """Return its tensors by name; numbers count as tensors."""
        return dict(_name_tensors("", self._made.state_dict()))


def _name_tensors(prefix: str, value: object) -> Iterator[Tuple[str, torch.Tensor]]:
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, (list, tuple)) else ()
    )
    for key, item in items:
        yield from _name_tensors(f"{prefix}.{key}" if prefix else str(key), item)
    if isinstance(value, torch.Tensor):
        yield prefix, value
    elif isinstance(value, (int, float)):
        yield prefix, torch.tensor(float(value), dtype=torch.float64)


@dataclass
class LoopWork:
    """What one side's loop does after its steps, calls and epochs.

    `schedulers` are stepped at the `pace`. `each_epoch(model, optimizer, epoch)` is called after each epoch, which
    are counted from 1. `also(model)` makes the state that the loop keeps, which is brought forward after each step,
    or each call where steps cannot be seen.
    """

    model: nn.Module
    optimizer: Any
    schedulers: Sequence[Any]
    pace: str = "step"
    each_epoch: Optional[Callable[[nn.Module, Any, int], None]] = None
    also: Optional[Callable[[nn.Module], Any]] = None

    def __post_init__(self) -> None:
        """Begin before the first step; PortingError V002 for a pace that is none."""
        if self.pace not in PACES:
            help = f"say one of {', '.join(map(repr, PACES))}"
            raise PortingError.at_caller("V002", message=f"a schedule has no pace {self.pace!r}", help=help)
        self.state = None if self.also is None else LoopState(self.also(self.model), self.model)
        self._num_epochs = 0
        self._losses: Dict[str, List[float]] = {pace: [] for pace in PACES}

    def update_state(self) -> None:
        """Bring the loop's own state forward, if it has any."""
        if self.state is not None:
            self.state.update()

    def end_step(self, loss: float) -> None:
        """Step the schedules that an optimizer step with this loss is followed by."""
        for losses in self._losses.values():
            losses.append(loss)
        self._step_schedules("step")

    def end_call(self, *, ends_epoch: bool) -> None:
        """Do what follows a call of the port, or the same steps of the plain loop."""
        self._step_schedules("call")
        if not ends_epoch:
            return
        self._step_schedules("epoch")
        self._num_epochs += 1
        if self.each_epoch is not None:
            self.each_epoch(self.model, self.optimizer, self._num_epochs)

    def _step_schedules(self, pace: str) -> None:
        losses = self._losses[pace]
        if pace == self.pace and losses:
            for scheduler in self.schedulers:
                step_schedule(scheduler, sum(losses) / len(losses))
        losses.clear()


def step_schedule(scheduler: Any, loss: float) -> None:
    """Step a schedule; one that watches the loss gets the mean since it was stepped last."""
    if scheduler is None:
        return
    with warnings.catch_warnings():
        # a copied optimizer does not know that a schedule counts its steps
        warnings.filterwarnings("ignore", r"(Seems like `optimizer|Detected call of `lr_scheduler)", UserWarning)
        inner = getattr(scheduler, "scheduler", scheduler)
        scheduler.step(loss) if isinstance(inner, ReduceLROnPlateau) else scheduler.step()
