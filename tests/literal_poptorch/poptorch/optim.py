"""PopTorch's optimizers, which are torch's with some arguments more."""

from __future__ import annotations

from typing import Any, Iterable

import torch


class VariableAttributes:
    """Which settings may change after compiling: those that were passed."""

    def __init__(self, passed: Iterable[str]) -> None:
        self._variable = set(passed)

    def markAsVariable(self, name: str) -> None:
        self._variable.add(name)

    def markAsConstant(self, name: str) -> None:
        self._variable.discard(name)

    def isConstant(self, name: str) -> bool:
        return name not in self._variable


class Optimizer(torch.optim.Optimizer):
    """What all of them are."""

    def _add_vendor_settings(
        self, passed: Iterable[str], *, loss_scaling: float = 1.0, max_grad_norm: Any = None, **types: Any
    ) -> None:
        self.loss_scaling, self.max_grad_norm = loss_scaling, max_grad_norm
        self.variable_attrs = VariableAttributes(passed)


_VENDORS = (
    "accum_type",
    "bias_correction",
    "first_order_momentum_accum_type",
    "loss_scaling",
    "max_grad_norm",
    "second_order_momentum_accum_type",
    "use_combined_accum",
    "velocity_accum_type",
    "velocity_scaling",
)


def _counterpart(name: str) -> type:
    theirs = getattr(torch.optim, name)

    def make(self: Any, params: Any, *args: Any, **settings: Any) -> None:
        vendors = {key: settings.pop(key) for key in _VENDORS if key in settings}
        theirs.__init__(self, params, *args, **settings)
        self._add_vendor_settings(["lr", *settings], **vendors)

    return type(name, (theirs, Optimizer), {"__init__": make})


SGD, Adam, AdamW, RMSprop = map(_counterpart, ("SGD", "Adam", "AdamW", "RMSprop"))


class LAMB(Optimizer):
    """Only there so that it can be recognised."""
