"""Arguments of operators on their way into the graph: types are narrowed, numbers of the host become constants."""

from __future__ import annotations

from typing import Any, Protocol

import torch

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


def is_own(recorder: Any, leaf: Any) -> bool:
    """Tell whether `leaf` is a device tensor of the capture by `recorder`."""
    return isinstance(leaf, DeviceTensor) and leaf.recorder is recorder


def admit_leaf(recorder: _Recording, name: str, leaf: Any) -> Any:
    """Let an argument of the operator `name` into the graph: narrow types, turn harmless host tensors into constants.

    Raises CaptureError for all that no device can take.
    """
    if isinstance(leaf, DeviceTensor):
        if not is_own(recorder, leaf):
            raise Refusal.FINISHED_CAPTURE.error(operator=f"aten::{name}")
        return leaf
    # numbers and index lists are part of the program; a larger tensor was probably forgotten on the host
    if isinstance(leaf, torch.Tensor):
        if leaf.dim() == 0 or name in _TRANSFERS or name in _INDEXING:
            return recorder.add_constant(leaf)
        raise errors.host_tensor_error(leaf)
    if isinstance(leaf, torch.dtype):
        if not is_device_dtype(leaf):
            raise errors.unsupported_result_error(name, str(leaf))
        return recorder.casts.dtype_of(leaf)
    if isinstance(leaf, torch.device):
        if not is_device(leaf):
            raise Refusal.MOVE.error(device=leaf)
        return torch.device("cpu")
    if isinstance(leaf, torch.Generator):
        raise Refusal.GENERATOR.error(name=name)
    return leaf
