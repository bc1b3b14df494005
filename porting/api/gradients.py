"""Gradients that a port brings to the host: anchored by their names on the device, and put together for each step."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

import torch

from ..diagnostics import DeviceError, caller_place
from .parts import Parts

__all__ = ["anchor_gradients", "gradients_of_step"]

_PREFIX = "Gradient___"


def anchor_gradients(
    parts: Parts, options: Any, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Let `options` bring the gradients of all parameters to the host that have one.

    Which ones have is known when the step has been compiled, so that it is compiled twice.
    """
    probe = parts.backend.module.trainingModel(parts.wrapped, options.clone(), optimizer=optimizer)
    try:
        probe.compile(*args, **kwargs)
        known = set(probe.getTensorNames())
    finally:
        probe.destroy()
    for name in _trainable_names(parts):
        if _PREFIX + name in known:
            options.anchorTensor(_PREFIX + name, _PREFIX + name)


def gradients_of_step(parts: Parts, executor: Any, iteration: int) -> Dict[str, torch.Tensor]:
    """Return the gradient that an optimizer step of the last call used, by parameter.

    The device has those of each micro-batch, times the loss scaling; they are joined as it joins them. Raises
    DeviceError D009 when the port keeps none, or has not been called.
    """
    options = parts.options
    if not options.keep_gradients:
        raise DeviceError.of(
            "D009",
            place=caller_place(),
            help="port the model with `PortOptions(keep_gradients=True)`",
        )
    if executor is None:
        raise DeviceError.of(
            "D009", message="there are no gradients before the first training call", place=caller_place()
        )
    size = options.accumulation * options.replicas
    scale = 1.0 / size if options.reduction == "mean" else 1.0
    found = {}
    for name in _trainable_names(parts):
        if _PREFIX + name in executor.options.anchored_tensors:
            shape = dict(parts.model.named_parameters())[name].shape
            anchored = executor.getAnchoredTensor(_PREFIX + name).reshape(options.device_iterations, size, *shape)
            found[name] = anchored[iteration].sum(dim=0) * (scale / _loss_scaling(parts))
    return found


def _trainable_names(parts: Parts) -> List[str]:
    return [name for name, parameter in parts.model.named_parameters() if parameter.requires_grad]


def _loss_scaling(parts: Parts) -> float:
    return float(getattr(parts.optimizer, "loss_scaling", 1.0))
