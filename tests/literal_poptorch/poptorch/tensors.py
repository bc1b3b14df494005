"""Nested tuples, lists and dictionaries of tensors."""

from __future__ import annotations

from typing import Any, Callable, List

import torch


def flatten(values: Any) -> List[torch.Tensor]:
    """Return all tensors of `values`, in order."""
    if isinstance(values, torch.Tensor):
        return [values]
    if isinstance(values, dict):
        values = list(values.values())
    return [tensor for value in values for tensor in flatten(value)] if isinstance(values, (tuple, list)) else []


def map_tensors(values: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return `values` with every tensor changed."""
    if isinstance(values, torch.Tensor):
        return change(values)
    if isinstance(values, dict):
        return type(values)(**{key: map_tensors(value, change) for key, value in values.items()})
    if isinstance(values, tuple) and hasattr(values, "_fields"):
        return type(values)(*(map_tensors(value, change) for value in values))
    if isinstance(values, (tuple, list)):
        return type(values)(map_tensors(value, change) for value in values)
    return values


def cut(values: Any, *, num_slices: int) -> List[Any]:
    """Cut all tensors along their rows into equal slices."""
    if num_slices == 1:  # a number has no rows
        return [values]
    for tensor in flatten(values):
        if tensor.shape[0] % num_slices:
            raise ValueError(f"{tensor.shape[0]} rows cannot be cut into {num_slices} micro-batches")

    def slice_of(index: int) -> Any:
        return map_tensors(values, lambda tensor: tensor.chunk(num_slices)[index])

    return [slice_of(index) for index in range(num_slices)]


def join(values: List[Any], joined: Callable[[List[torch.Tensor]], torch.Tensor]) -> Any:
    """Join the tensors at the same place of several nested values."""
    first = values[0]
    if isinstance(first, torch.Tensor):
        return joined(values)
    if isinstance(first, dict):
        return type(first)(**{key: join([value[key] for value in values], joined) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(join([value[i] for value in values], joined) for i in range(len(first))))
    if isinstance(first, (tuple, list)):
        return type(first)(join([value[i] for value in values], joined) for i in range(len(first)))
    return first
