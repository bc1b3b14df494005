"""What is checked of the first batch of a training step, before anything is compiled."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from ..adapters.labels import NO_LABELS, split_labels
from ..diagnostics import BatchError, DeviceError, caller_place
from ..options import PortOptions
from .failures import find_foreign_device
from .parts import Parts

__all__ = ["check_first_batch", "check_labels", "has_labels"]


def has_labels(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call brings labels for the loss; a model with a loss of its own takes all arguments itself."""
    if parts.loss is None:
        return False
    return split_labels(parts.model.forward, args, kwargs, label=parts.label).labels is not NO_LABELS


def check_first_batch(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a training batch on another device (B009), of arrays (B012), without labels (D006), of other rows (B001).

    Rows are only checked where the options name a micro-batch; otherwise the batch decides it.
    """
    foreign = find_foreign_device(args, kwargs)
    if foreign is not None:
        raise BatchError(foreign)
    _refuse_arrays(args, kwargs)
    check_labels(parts, args, kwargs)
    if parts.options.micro_batch > 1:
        _check_rows(parts.options, args, kwargs)


def check_labels(parts: Parts, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a training call without labels (D006), or with arguments that fit neither model nor label (L006)."""
    if parts.loss is not None and not has_labels(parts, args, kwargs):
        raise DeviceError.of(
            "D006",
            message="a training call got no labels",
            place=caller_place(),
            label="this call",
            help=(
                "pass them, `ported(inputs, labels)`, or use `ported.inference()(inputs)`",
                "pass a dictionary by keyword, `ported(**batch)`, and name the label's key: `to_ipu(..., label='y')`",
            ),
        )


def _refuse_arrays(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse (B012) what holds numbers and is no tensor; it would be compiled in."""
    named = [*((f"argument {number}", value) for number, value in enumerate(args)), *kwargs.items()]
    for name, value in named:
        if hasattr(value, "__array_interface__") and not isinstance(value, torch.Tensor):
            kind = type(value)
            raise BatchError.of(
                "B012",
                message=f"{name} is a {kind.__module__}.{kind.__qualname__}, not a tensor",
                place=caller_place(),
                label="this call",
                help="convert it: `torch.from_numpy(...)`, or take batches from `ported.dataloader(dataset)`",
            )


def _check_rows(options: PortOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.dim()]
    rows = [tensor.shape[0] for tensor in tensors]
    # some arguments may hold no samples, as the edges of a graph
    if rows and options.samples_per_call not in rows:
        raise BatchError.of(
            "B001",
            message=f"the batch has {rows[0]} rows, the options ask for {options.samples_per_call}",
            place=caller_place(),
            label="this call",
            notes=(
                f"rows = {options.micro_batch} micro-batch x {options.accumulation} accumulation x "
                f"{options.replicas} replicas x {options.device_iterations} device iterations",
            ),
            help="take batches from `ported.dataloader(...)`, or change `micro_batch`",
        )
