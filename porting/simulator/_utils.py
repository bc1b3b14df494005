"""Offer PopTorch's names for flattening and rebuilding nested values, and for recognising traced tensors."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable, Iterator, List, Sequence

import torch

from ..capture.device_tensor import DeviceTensor
from ..structure import Structure, flatten_tensors, rebuild
from ._operators.custom_ops import accessAttributes
from .errors import createPoptorchError

__all__ = [
    "accessAttributes",
    "combine_batch_tensors_gen",
    "flattenTensorStructure",
    "getIpuTensorId",
    "reconstructTensorStructure",
]

_next_id = itertools.count(1)


def flattenTensorStructure(tensors: Structure, canonical_structure: Structure = None) -> List[torch.Tensor]:
    """List the tensors inside `tensors`, depth first; dictionaries in the key order of `canonical_structure`."""
    return flatten_tensors(tensors, like=canonical_structure)


def reconstructTensorStructure(
    structure: Structure, values: Iterable[Any], filter_fn: Callable[[torch.Tensor], bool] = lambda _tensor: True
) -> Any:
    """Replace the tensors of `structure` for which `filter_fn` is true by `values`."""
    return rebuild(structure, values, replaces=filter_fn)


def combine_batch_tensors_gen(tensors: Sequence[Sequence[torch.Tensor]]) -> Iterator[torch.Tensor]:
    """Yield one tensor for each tensor of a batch: those of all batches, joined along dimension 0.

    `tensors` has a row for each batch. Loaders of other libraries rebuild their combined batches with it.

    >>> first, second = [torch.zeros(1, 2), torch.zeros(3)], [torch.ones(1, 2), torch.ones(2)]
    >>> [tuple(joined.shape) for joined in combine_batch_tensors_gen([first, second])]
    [(2, 2), (5,)]
    """
    for index in range(len(tensors[0])):
        yield torch.cat([batch[index] for batch in tensors])


def getIpuTensorId(x: torch.Tensor) -> int:
    """Return a number that no other tensor of a trace has; `poptorch.Error` for a tensor of the host."""
    if not isinstance(x, DeviceTensor):
        raise createPoptorchError(f"getIpuTensorId needs a tensor on the IPU, got one on {x.device}")
    # kept with the tensor: an address would be used again for another one
    return int(x.__dict__.setdefault("_ipu_tensor_id", next(_next_id)))
