"""The learning rate in pieces: a warm-up, a plateau, and a decay to a floor."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Schedule"]


@dataclass(frozen=True)
class Schedule:
    """The learning rate of each step, for a LambdaLR of an optimizer whose own learning rate is 1.

    It rises in a line from `start_rate` to `peak_rate` over the first `warm_up_epochs`, stays there for `flat_epochs`,
    and falls to `floor_rate` from then on, by exp(-`decay_per_epoch`) of what is above the floor in each epoch.

    >>> rate = Schedule(steps_per_epoch=100)
    >>> rate(0), rate(100), rate(2100)
    (1e-05, 0.0003, 0.0003)
    >>> round(rate(2200), 6), round(rate(10000), 6)
    (0.000174, 0.0001)
    """

    steps_per_epoch: float
    start_rate: float = 1e-5
    peak_rate: float = 3e-4
    floor_rate: float = 1e-4
    warm_up_epochs: float = 1.0
    flat_epochs: float = 20.0
    decay_per_epoch: float = 0.999

    def __post_init__(self) -> None:
        """Refuse epochs without steps."""
        if self.steps_per_epoch <= 0:
            raise ValueError(f"`steps_per_epoch` is {self.steps_per_epoch}; an epoch has steps")

    def __call__(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        epoch = step / self.steps_per_epoch
        if epoch < self.warm_up_epochs:
            return self.start_rate + (self.peak_rate - self.start_rate) * epoch / self.warm_up_epochs
        decaying_epochs = max(0.0, epoch - self.warm_up_epochs - self.flat_epochs)
        return self.floor_rate + (self.peak_rate - self.floor_rate) * math.exp(-self.decay_per_epoch * decaying_epochs)
