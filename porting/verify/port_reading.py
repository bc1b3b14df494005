"""Read a loss as the port does, for the plain side of a proof, where plain PyTorch has no one way of computing it.

A fault of the adapters is then on both sides, so that no proof which uses it may say PASS.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, Dict

import torch
from torch import nn

from porting.adapters.loss import NO_BACKEND, LossInForward
from porting.verify.plain_training import PlainTraining

__all__ = ["PortReading", "read_as_port"]


class PortReading:
    """A `compute_loss` that computes the loss of a training as `to_ipu` reads it."""

    def __init__(self, training: PlainTraining) -> None:
        """Read the loss and its settings; the model is that of each call."""
        self._training = training

    def __call__(self, model: nn.Module, *args: object, **kwargs: object) -> torch.Tensor:
        """Run `model` and compute its loss."""
        own = self._training
        wrapped = LossInForward(
            model,
            own.loss,
            backend=NO_BACKEND,
            label=own.label,
            label_transform=own.label_transform,
            loss_output=own.loss_output,
            reduction=own.reduction,
        )
        loss: torch.Tensor = wrapped.loss_of(wrapped(*args, **kwargs))
        return loss

    def __deepcopy__(self, memo: Dict[int, Any]) -> PortReading:
        """Copy the loss alone, together with what is copied beside it: the model is given to each call."""
        loss = copy.deepcopy(self._training.loss, memo)
        return PortReading(replace(self._training, loss=loss))


def read_as_port(training: PlainTraining) -> PlainTraining:
    """Return a training whose loss is computed by the port's reading of it."""
    return replace(training, compute_loss=PortReading(training))
