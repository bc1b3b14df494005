"""Models and batches of the catalogue: their numbers are the same in every version of torch."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch
from torch import nn


class Trained(nn.Module):
    """A model and a loss: `forward` returns the output and its loss."""

    def __init__(self, model: nn.Module, loss: Callable[[Any, Any], torch.Tensor] = nn.functional.mse_loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        output = self.model(x)
        return output, self.loss(output, target)


class Applied(nn.Module):
    """A function as a module, with one weight so that it can be trained too."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x * self.weight)


def filled(model: nn.Module) -> nn.Module:
    """Give every parameter numbers between -0.5 and 0.5."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).reshape(parameter.shape))
    return model


def regression() -> Trained:
    """Three inputs, two outputs, the mean squared error."""
    return Trained(filled(nn.Linear(3, 2)))


def classifier() -> Trained:
    """Three inputs, two layers, two classes, the cross entropy."""
    return Trained(filled(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))), nn.functional.cross_entropy)


def batch(rows: int = 4) -> Tuple[torch.Tensor, torch.Tensor]:
    """Give inputs and targets of a `regression`."""
    return torch.linspace(-1, 1, rows * 3).reshape(rows, 3), torch.linspace(0, 1, rows * 2).reshape(rows, 2)


def labelled(rows: int = 4) -> Tuple[torch.Tensor, torch.Tensor]:
    """Give inputs and labels of a `classifier`."""
    return batch(rows)[0], torch.arange(rows) % 2
