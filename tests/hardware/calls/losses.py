"""Losses: torch's functions with their reductions, identity losses, several losses, and none."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
from torch import nn
from torch.nn import functional

from tests.hardware.material import Trained, batch, filled, labelled

_REGRESSIONS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")


def _trained(
    loss: Callable[[Any], Callable[..., torch.Tensor]], data: Callable[[], Any] = batch
) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        executor = poptorch.trainingModel(Trained(filled(nn.Linear(3, 2)), loss(poptorch)))
        return [executor(*data())[1] for _ in range(2)]

    return call


def _of_torch(name: str, reduction: str) -> Callable[[Any], Callable[..., torch.Tensor]]:
    return lambda _poptorch: lambda output, target: getattr(functional, name)(output, target, reduction=reduction)


def _identity(reduction: str) -> Callable[[Any], Callable[..., torch.Tensor]]:
    return lambda poptorch: lambda output, target: poptorch.identity_loss((output - target) ** 2, reduction)


def _two_losses(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.mse_loss(output, target) + functional.smooth_l1_loss(output, target)


_MORE: Dict[str, Callable[[Any], Any]] = {
    **{f"identity_loss with {reduction!r}": _trained(_identity(reduction)) for reduction in ("mean", "sum")},
    "identity_loss with another reduction": _trained(_identity("median")),
    "identity_loss of no reduction around a mean": _trained(
        lambda p: lambda o, t: p.identity_loss(((o - t) ** 2).mean(), "none")
    ),
    "no loss": _trained(lambda p: lambda o, t: ((o - t) ** 2).mean()),
    "a sum of two losses": _trained(lambda p: _two_losses),
    "two losses and a final one": _trained(lambda p: lambda o, t: p.identity_loss(_two_losses(o, t), "none")),
    "two losses that are returned": _trained(
        lambda p: lambda o, t: (functional.mse_loss(o, t), functional.smooth_l1_loss(o, t))
    ),
    "a loss of a loss": _trained(lambda p: lambda o, t: p.identity_loss(functional.mse_loss(o, t) * 2.0, "mean")),
    "cross entropy": _trained(lambda p: functional.cross_entropy, labelled),
    "cross entropy summed": _trained(lambda p: nn.CrossEntropyLoss(reduction="sum"), labelled),
    "negative log likelihood": _trained(
        lambda p: lambda o, y: functional.nll_loss(torch.log_softmax(o, 1), y), labelled
    ),
    "binary cross entropy": _trained(lambda p: lambda o, t: functional.binary_cross_entropy(torch.sigmoid(o), t)),
    "binary cross entropy with logits": _trained(lambda p: nn.BCEWithLogitsLoss()),
    "labels as floats": _trained(lambda p: functional.cross_entropy, lambda: (batch()[0], torch.zeros(4))),
}

CALLS: Dict[str, Callable[[Any], Any]] = {
    **{
        f"{name} with {reduction!r}": _trained(_of_torch(name, reduction))
        for name in _REGRESSIONS
        for reduction in ("mean", "sum")
    },
    **_MORE,
}
