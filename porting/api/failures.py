"""Why a call failed: the backend's complaint in the toolkit's words, with the line and the remedy."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence

import torch

from ..diagnostics import BatchError, CaptureError, DeviceError, Finding, OptionError, PortingError, caller_place
from .batch_signature import BatchSignature

__all__ = ["explain_failure", "find_foreign_device", "refuse_loss_without_gradient"]

_DEVICE_FAMILIES = ("S", "D")


class _Phrase(NamedTuple):
    """A part of one of PopTorch's messages, and what it means."""

    text: str
    code: str
    remedy: str


# what PopTorch says without a line; the simulator's errors carry their finding
_PHRASES = (
    _Phrase("Couldn't find a loss in graph", "L004", "pass the loss: `to_ipu(model, loss)`"),
    _Phrase("Multiple independent losses found", "L005", "add the losses up to one: `loss={'a': loss_a, 'b': loss_b}`"),
    _Phrase("aten::item is only supported in eager mode", "C001", "look for `.item()`, `float()` and `if` on tensors"),
    _Phrase("output shape is determined by the tensor values", "C002", "compute with a mask, `torch.where`, instead"),
    _Phrase("Expected an IPU tensor but got", "C003", "make constants buffers of the module: `register_buffer`"),
    _Phrase(
        "does not support broadcasting buffers",
        "P002",
        "pass `PortOptions(broadcast_buffers=False)`: each replica then keeps buffers (statistics) of its own",
    ),
    _Phrase("Illegal move to ", "C004", "return the tensor from `forward` and move it there"),
)


def explain_failure(
    error: BaseException,
    compiled_for: Optional[BatchSignature],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    remedy: str,
) -> Optional[PortingError]:
    """Return the toolkit's error for `error`, which a backend raised for a call, or None when it says enough itself.

    Backends that explain themselves carry the `finding`. Otherwise the arguments are compared with those of the
    compilation, if there is one, and the vendor's well-known messages are told apart. `remedy` says how to compile for
    other batches.
    """
    if isinstance(error, PortingError):
        return None
    finding = getattr(error, "finding", None)
    if isinstance(finding, Finding):
        return (DeviceError if finding.code.startswith(_DEVICE_FAMILIES) else CaptureError)(finding)
    finding = find_foreign_device(args, kwargs)
    if finding is None and compiled_for is not None:
        finding = compiled_for.difference(BatchSignature(args, kwargs), remedy=remedy)
    if finding is None and "Invalid batch dimension" in str(error):
        finding = _not_divisible(str(error), args, kwargs)
    return _in_other_words(str(error)) if finding is None else BatchError(finding)


def find_foreign_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Finding]:
    """Return the finding B009 for an argument that is not in the host's memory, or None."""
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return Finding(
                "B009",
                message=f"a tensor of the batch is on `{value.device}`",
                place=caller_place(),
                label="this call",
                help="leave batches on the CPU: the call moves them to the device itself",
            )
    return None


def _not_divisible(vendor_text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Finding:
    return Finding(
        "B004",
        message=f"a batch of {BatchSignature(args, kwargs).rows} rows cannot be cut into equal micro-batches",
        place=caller_place(),
        label="this call",
        notes=("rows = micro-batch x accumulation x replicas x device iterations", _first_line(vendor_text)),
        help="hand over `options.samples_per_call` rows: `ported.dataloader(...)` makes such batches",
    )


def _in_other_words(vendor_text: str) -> Optional[PortingError]:
    for phrase in _PHRASES:
        if phrase.text in vendor_text:
            kind = OptionError if phrase.code.startswith("P") else CaptureError
            return kind.of(
                phrase.code,
                place=caller_place(),
                label="within this call",
                notes=f"the device says: {_first_line(vendor_text)}",
                help=phrase.remedy,
            )
    return None


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def refuse_loss_without_gradient(executor: Any) -> None:
    """Raise CaptureError L003 if no parameter of a compiled training `executor` gets a gradient.

    A backend that names no tensors cannot be asked.
    """
    names = executor.getTensorNames()
    if names and not any(name.startswith("Gradient___") for name in names):
        raise CaptureError.of(
            "L003",
            message="the loss does not depend on any trainable parameter",
            notes=("it was computed under `torch.no_grad()` or from detached tensors",),
            help="remove the `detach()` or `no_grad()` between the parameters and the loss",
        )
