"""Gradients that a port brings to the host: anchored by their names on the device, and put together for each step."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence

import torch

from ..diagnostics import DeviceError, OptionError, caller_place
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

    The device has those of each micro-batch, times the loss scaling; they are joined as it joins them. `iteration` is
    the place of the step in the call, from its end where it is negative. Raises DeviceError D009 when the port keeps
    none, or has not been called, OptionError P002 for a step that the call does not have.
    """
    options = parts.options
    _check_iteration(iteration, options.device_iterations)
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


def _check_iteration(iteration: int, count: int) -> None:
    if isinstance(iteration, bool) or not isinstance(iteration, int) or not -count <= iteration < count:
        raise OptionError.of(
            "P002",
            message=f"`iteration` is {iteration!r}, and a call makes {count} optimizer step{'s' * (count > 1)}",
            place=caller_place(),
            help=f"use a number from 0 to {count - 1}, or from the end one from -{count} to -1",
        )


def _trainable_names(parts: Parts) -> List[str]:
    return [name for name, parameter in parts.model.named_parameters() if parameter.requires_grad]


def _loss_scaling(parts: Parts) -> float:
    return float(getattr(parts.optimizer, "loss_scaling", 1.0))
