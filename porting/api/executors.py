"""How the executors of a port are made, and the optimizer that the training one uses."""

from __future__ import annotations

import logging
from typing import Any, Mapping, Sequence

from ..adapters import default_optimizer, sync_hyper_parameters
from ..adapters.stages import require_filled_pipeline
from ..diagnostics import PortingError, caller_place
from ..module_attributes import materialise_lazy_modules
from .gradients import anchor_gradients
from .modes import eval_modes
from .parts import Parts

__all__ = ["make_inference_executor", "make_training_executor", "optimizer_of"]

logger = logging.getLogger("porting")


def optimizer_of(parts: Parts) -> Any:
    """Return the device's optimizer; without one, make and announce the default."""
    if parts.optimizer is None:
        parts.optimizer = default_optimizer(parts.wrapped, backend=parts.backend.module)
        logger.warning("no optimizer was given: the device uses its default, SGD with a learning rate of 0.01")
    return parts.optimizer


def make_training_executor(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make the backend's training executor, for which `args` and `kwargs` are the first batch."""
    _materialise(parts, args, kwargs)
    if not any(parameter.requires_grad for parameter in parts.wrapped.parameters()):
        raise PortingError.of(
            "L003",
            message="no parameter of the model is trainable",
            place=caller_place(),
            help="call `requires_grad_(True)` on what should train, or use `ported.inference()`",
        )
    require_filled_pipeline(parts.options)
    optimizer = optimizer_of(parts)
    if parts.torch_optimizer is not None and parts.has_counterpart:
        sync_hyper_parameters(parts.torch_optimizer, optimizer, is_compiled=False)
    options = _options_for(parts, training=True)
    if parts.options.keep_gradients:
        anchor_gradients(parts, options, optimizer, args, kwargs)
    return parts.backend.module.trainingModel(parts.wrapped, options, optimizer=optimizer)


def make_inference_executor(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Make an inference executor of the backend that shares the model's weights."""
    _materialise(parts, args, kwargs)
    options = _options_for(parts, training=False)
    return parts.backend.module.inferenceModel(parts.wrapped.for_inference(), options)


def _options_for(parts: Parts, *, training: bool) -> Any:
    """Return the backend's options; one that has findings of its own hands them over instead of logging them."""
    options = parts.vendor_options[training].clone()
    if hasattr(options, "reportTo"):
        options.reportTo(lambda finding: parts.unsaid.append(finding))
    return options


def _materialise(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    with eval_modes(parts):
        materialise_lazy_modules(parts.wrapped, args, kwargs)
