"""Why a call failed: the backend's complaint compared with the batch that the model was compiled for."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Sequence

import torch

from ..diagnostics import BatchError, CaptureError, DeviceError, Finding, PortingError, caller_place
from .batch_signature import BatchSignature

__all__ = ["explain_failure", "find_foreign_device"]

_DEVICE_FAMILIES = ("S", "D")


def explain_failure(
    error: BaseException,
    compiled_for: Optional[BatchSignature],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    remedy: str,
) -> Optional[PortingError]:
    """Return the toolkit's error for `error`, which a backend raised for a call, or None when it says enough itself.

    Backends that explain themselves carry the `finding`; otherwise the arguments are compared with those of the
    compilation, if there is one. `remedy` says how to compile for other batches.
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
    return None if finding is None else BatchError(finding)


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
        notes=("rows = micro-batch x accumulation x replicas x device iterations", vendor_text.split("\n", 1)[0]),
        help="hand over `options.samples_per_call` rows: `ported.dataloader(...)` makes such batches",
    )
