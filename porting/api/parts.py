"""What a ported model is made of, and how its executors are made from that."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ..adapters import Backend, LossInForward, default_optimizer, sync_hyper_parameters
from ..diagnostics import Finding
from ..lazy_modules import materialise_lazy_modules
from ..options import PortOptions, to_poptorch

__all__ = ["Parts", "make_inference_executor", "make_training_executor", "optimizer_of"]

logger = logging.getLogger("porting")


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
        self.vendor_options = {
            training: to_poptorch(self.options, self.backend.module, training=training) for training in (True, False)
        }

    @property
    def has_counterpart(self) -> bool:
        """Whether the device's optimizer is another object than the one the user holds."""
        return self.torch_optimizer is not None and self.torch_optimizer is not self.optimizer


def optimizer_of(parts: Parts) -> Any:
    """Return the device's optimizer; without one, make and announce the default."""
    if parts.optimizer is None:
        parts.optimizer = default_optimizer(parts.wrapped, backend=parts.backend.module)
        logger.warning("no optimizer was given: the device uses its default, SGD with a learning rate of 0.01")
    return parts.optimizer


def make_training_executor(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make the backend's training executor, for which `args` and `kwargs` are the first batch."""
    materialise_lazy_modules(parts.wrapped, args, kwargs)
    optimizer = optimizer_of(parts)
    if parts.torch_optimizer is not None and parts.has_counterpart:
        sync_hyper_parameters(parts.torch_optimizer, optimizer, is_compiled=False)
    options = parts.vendor_options[True].clone()
    return parts.backend.module.trainingModel(parts.wrapped, options, optimizer=optimizer)


def make_inference_executor(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make an inference executor of the backend that shares the model's weights."""
    materialise_lazy_modules(parts.wrapped, args, kwargs)
    options = parts.vendor_options[False].clone()
    return parts.backend.module.inferenceModel(parts.wrapped.for_inference(), options)
