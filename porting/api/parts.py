"""What a ported model is made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple

import torch
from torch import nn

from ..adapters import Backend, LossInForward
from ..diagnostics import Finding
from ..options import PortOptions, to_poptorch

__all__ = ["Parts"]


@dataclass
class Parts:
    """The user's model, loss and optimizer, and their counterparts on the device.

    `wrapped` is the model with its loss in `forward`. `torch_optimizer` is what the user gave; `optimizer` what the
    device uses: the same object where that is one of the backend's, None as long as none was given nor needed.
    `vendor_options` are the backend's options for training (True) and inference (False).
    """

    model: nn.Module
    wrapped: LossInForward
    loss: Any
    label: Any
    backend: Backend
    options: PortOptions
    torch_optimizer: Optional[torch.optim.Optimizer] = None
    optimizer: Any = None
    findings: Tuple[Finding, ...] = ()
    vendor_options: Dict[bool, Any] = field(init=False)

    def __post_init__(self) -> None:
        make = functools.partial(to_poptorch, self.options, self.backend.module, popdist=self.backend.popdist)
        self.vendor_options = {training: make(training=training) for training in (True, False)}

    @property
    def has_counterpart(self) -> bool:
        """Whether the device's optimizer is another object than the one the user holds."""
        return self.torch_optimizer is not None and self.torch_optimizer is not self.optimizer
