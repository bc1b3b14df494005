"""Arguments of operators on their way into the graph: types are narrowed, numbers of the host become constants."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from ...diagnostics import refuse
from .. import errors
from ..device_tensor import DeviceTensor, is_device
from ..dtypes import is_device_dtype
from ..errors import Refusal
from .float_casts import FloatCasts

__all__ = ["admit_leaf", "is_own"]

_TRANSFERS = frozenset(["copy_", "_to_copy", "to"])
_INDEXING = frozenset(["index", "index_put", "index_put_", "_index_put_impl_"])


class _Recording(Protocol):
    """The recorder of the graph."""

    casts: FloatCasts

    def add_constant(self, value: torch.Tensor) -> Any:
        """Add a host tensor to the graph."""


def is_own(recorder: object, leaf: object) -> bool:
    """Tell whether `leaf` is a device tensor of the capture by `recorder`."""
    return isinstance(leaf, DeviceTensor) and leaf.recorder is recorder


def admit_leaf(recorder: _Recording, name: str, leaf: object) -> Any:
    """Let an argument of the operator `name` into the graph: narrow types, turn harmless host tensors into constants.

    Raises CaptureError for all that no device can take.
    """
    if isinstance(leaf, DeviceTensor):
        if not is_own(recorder, leaf):
            refuse(Refusal.FINISHED_CAPTURE.error(operator=f"aten::{name}"))
            return recorder.add_constant(torch.zeros(leaf.shape, dtype=leaf.dtype, device="cpu"))
        return leaf
    # numbers and index lists are part of the program; a larger tensor was probably forgotten on the host
    if isinstance(leaf, torch.Tensor):
        if leaf.dim() > 0 and name not in _TRANSFERS and name not in _INDEXING:
            refuse(errors.host_tensor_error(leaf))
            leaf = torch.zeros(leaf.shape, dtype=leaf.dtype, device="cpu")  # no news when `forward` makes it anew
        return recorder.add_constant(leaf)
    if isinstance(leaf, torch.dtype):
        if not is_device_dtype(leaf):
            refuse(errors.unsupported_result_error(name, str(leaf)))
        return recorder.casts.dtype_of(leaf)
    if isinstance(leaf, torch.device):
        if not is_device(leaf):
            refuse(Refusal.MOVE.error(device=leaf))
        return torch.device("cpu")
    if isinstance(leaf, torch.Generator):
        refuse(Refusal.GENERATOR.error(name=name))
        return None
    return leaf
