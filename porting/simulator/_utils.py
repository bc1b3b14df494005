"""PopTorch's names for taking nested values apart and putting them together, and for telling traced tensors apart."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, List

import torch

from ..capture import flatten_tensors, rebuild
from ..capture.device_tensor import DeviceTensor
from ._operators.custom_ops import accessAttributes
from .errors import createPoptorchError

__all__ = ["accessAttributes", "flattenTensorStructure", "getIpuTensorId", "reconstructTensorStructure"]

_next_id = itertools.count(1)


def flattenTensorStructure(x: Any, canonical: Any = None) -> List[torch.Tensor]:
    """List the tensors inside `x`, depth first; dictionaries in the key order of `canonical`."""
    return flatten_tensors(x, like=canonical)


def reconstructTensorStructure(
    structure: Any, values: Iterable[Any], filter_fn: Callable[[torch.Tensor], bool] = lambda _tensor: True
) -> Any:
    """Put `values` in the places of the tensors of `structure` for which `filter_fn` is true."""
    return rebuild(structure, values, replaces=filter_fn)


def getIpuTensorId(tensor: torch.Tensor) -> int:
    """Return a number that no other tensor of a trace has; `poptorch.Error` for a tensor of the host."""
    if not isinstance(tensor, DeviceTensor):
        raise createPoptorchError(f"getIpuTensorId needs a tensor on the IPU, got one on {tensor.device}")
    return int(tensor.__dict__.setdefault("_ipu_tensor_id", next(_next_id)))
