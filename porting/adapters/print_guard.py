"""Printing a tensor of the device while `forward` is traced is an error: there is no value to print."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from porting.diagnostics import CaptureError, caller_place

__all__ = ["PrintGuard"]

# `str` and f-strings come here through `__repr__` and `__format__`.
_PRINTING = frozenset([torch.Tensor.__repr__, torch.Tensor.__format__])


class PrintGuard(TorchFunctionMode):
    """A context in which turning a device tensor into text raises CaptureError C010 with the user's line.

    PopTorch shows `<unavailable>` instead, once, at compile time, and the programmer looks for the fault elsewhere.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse text of device tensors and pass everything else on."""
        if func in _PRINTING and args[0].device.type == "ipu":
            raise _printing_error(args[0])
        return func(*args, **(kwargs or {}))


def _printing_error(tensor: torch.Tensor) -> CaptureError:
    return CaptureError.of(
        "C010",
        place=caller_place(),
        label="`forward` runs once, before there are values",
        notes=f"the tensor has shape {tuple(tensor.shape)} and type {tensor.dtype}",
        help="return the tensor as an output of the model, or use `poptorch.ipu_print_tensor(tensor)`",
    )
