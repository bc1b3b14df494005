"""`fps` and `nearest`: the operators on sets of points that graph networks use."""

from __future__ import annotations

from typing import List, Optional, Sequence, Union

import torch

from ...capture.device_operators import define_device_operator
from ..errors import createPoptorchError
from . import op_library  # noqa: F401 - defines the operators
from .point_sets import num_sampled

__all__ = ["fps", "nearest"]


def fps(src: torch.Tensor, ptr: List[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Sample from each set of points those that are farthest from each other; return their indices.

    Rows `ptr[i]` to `ptr[i + 1]` of `src` [N, D] are one set, of which a share of `ratio` is kept, rounded up.
    Sampling begins with the first point of the set, or with one at random. Raises `poptorch.Error` for arguments of
    other types.

    >>> fps(torch.tensor([[0.0], [1.0], [5.0], [4.0]]), [0, 4], ratio=0.5)
    tensor([0, 2])
    """
    if not isinstance(src, torch.Tensor):
        raise createPoptorchError("`fps` must take a torch.tensor input")
    if not isinstance(ptr, list) or not all(isinstance(border, int) for border in ptr):
        raise createPoptorchError("`ptr` must be a list of integers.")
    if len(ptr) < 2:
        raise createPoptorchError("`ptr` must containt at least 2 elements.")
    if not isinstance(ratio, float):
        raise createPoptorchError("`ratio` must be of float type")
    if not isinstance(random_start, bool):
        raise createPoptorchError("`random_start` must be of bool type")
    return torch.ops.poptorch.fps(src, ptr, ratio, random_start)


_Batch = Optional[Union[List[int], torch.Tensor]]


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: _Batch = None, batch_y: _Batch = None) -> torch.Tensor:
    """Return for each row of `x` [N, D] the index of the nearest row of `y` [M, D].

    `batch_x` [N] and `batch_y` [M] say to which batch each row belongs, as lists or tensors; only rows of the same
    batch are compared. Raises `poptorch.Error` if `x` or `y` are no tensors, or the
    batches neither lists nor tensors.

    >>> nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0], [2.0]]))
    tensor([1, 0])
    """
    for name, tensor in (("x", x), ("y", y)):
        if not isinstance(tensor, torch.Tensor):
            raise createPoptorchError(
                f"`nearest` must take a torch.tensor `{name}` input, got {type(tensor).__name__} instead."
            )
    for name, batch in (("batch_x", batch_x), ("batch_y", batch_y)):
        if batch is not None and not isinstance(batch, (list, torch.Tensor)):
            raise createPoptorchError(
                f"`batch_x` and `batch_y` must be torch.Tensors or lists, but `{name}` is {type(batch).__name__}."
            )
    if isinstance(batch_x, list) and isinstance(batch_y, list):
        return torch.ops.poptorch.nearest_batch_list(x, y, batch_x, batch_y)
    return torch.ops.poptorch.nearest(x, y, _like(batch_x, batch_y), _like(batch_y, batch_x))


def _like(batch: _Batch, other: _Batch) -> Optional[torch.Tensor]:
    """Make a tensor of a list, of the type and on the device of the other batch."""
    if not isinstance(batch, list):
        return batch
    if isinstance(other, torch.Tensor):
        return torch.tensor(batch, dtype=other.dtype, device=other.device)
    return torch.tensor(batch)


# -- on the device -----------------------------------------------------------------------------------------------------


def _fps_shape(src: torch.Tensor, ptr: Sequence[int], ratio: float, _random_start: bool) -> torch.Tensor:
    return src.new_empty(sum(num_sampled(ptr, ratio)), dtype=torch.int64)


def _nearest_shape(x: torch.Tensor, _y: torch.Tensor, *_batches: object) -> torch.Tensor:
    return x.new_empty(x.shape[0], dtype=torch.int64)


define_device_operator(torch.ops.poptorch.fps.default, shape=_fps_shape)
define_device_operator(torch.ops.poptorch.nearest.default, shape=_nearest_shape)
define_device_operator(torch.ops.poptorch.nearest_batch_list.default, shape=_nearest_shape)
