"""Lazy modules get their parameters before anything looks at the model's."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .module_attributes import eval_modes

__all__ = ["materialise_lazy_modules"]


def materialise_lazy_modules(model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Give lazy modules their parameters by one run of `forward` on the host, in eval mode and without gradients.

    Does nothing when `model` has no lazy tensor left. The modes of all modules are as before afterwards.

    >>> model = nn.LazyLinear(2)
    >>> materialise_lazy_modules(model, [torch.ones(1, 3)], {})
    >>> model.weight.shape
    torch.Size([2, 3])
    """
    if not any(is_lazy(tensor) for tensor in [*model.parameters(), *model.buffers()]):
        return
    with eval_modes(model.modules()), torch.no_grad():
        model(*args, **kwargs)
