"""Implement `fps` and `nearest`, the operators on sets of points that graph networks use.

N, M = points, D = dimensions.
"""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Union

import torch

from .op_library import define_operator, require_argument

__all__ = ["fps", "nearest"]


def fps(src: torch.Tensor, ptr: List[int], ratio: float = 0.5, random_start: bool = False) -> torch.Tensor:
    """Sample from each set of points those that are farthest from each other; return their indices.

    Rows `ptr[i]` to `ptr[i + 1]` of `src` [N, D] are one set, of which a share of `ratio` is kept, rounded up.
    Sampling begins with the first point of the set, or with one at random. Raises `poptorch.Error` for arguments of
    other types.

    >>> fps(torch.tensor([[0.0], [1.0], [5.0], [4.0]]), [0, 4], ratio=0.5)
    tensor([0, 2])
    """
    require_argument(isinstance(src, torch.Tensor), "`fps` must take a torch.tensor input")
    is_list = isinstance(ptr, list) and all(isinstance(border, int) for border in ptr)
    require_argument(is_list, "`ptr` must be a list of integers.")
    require_argument(len(ptr) >= 2, "`ptr` must containt at least 2 elements.")
    require_argument(isinstance(ratio, float), "`ratio` must be of float type")
    require_argument(isinstance(random_start, bool), "`random_start` must be of bool type")
    return torch.ops.poptorch.fps(src, ptr, ratio, random_start)


_Batch = Optional[Union[List[int], torch.Tensor]]


def nearest(x: torch.Tensor, y: torch.Tensor, batch_x: _Batch = None, batch_y: _Batch = None) -> torch.Tensor:
    """Return for each row of `x` [N, D] the index of the nearest row of `y` [M, D].

    `batch_x` [N] and `batch_y` [M] say to which batch each row belongs, as lists or tensors; only rows of the same
    batch are compared. Raises `poptorch.Error` if `x` or `y` are no tensors, or the batches neither lists nor tensors.

    >>> nearest(torch.tensor([[0.0], [9.0]]), torch.tensor([[8.0], [1.0], [2.0]]))
    tensor([1, 0])
    """
    for name, tensor in (("x", x), ("y", y)):
        kind = type(tensor).__name__
        is_tensor = isinstance(tensor, torch.Tensor)
        require_argument(is_tensor, f"`nearest` must take a torch.tensor `{name}` input, got {kind} instead.")
    for name, batch in (("batch_x", batch_x), ("batch_y", batch_y)):
        require_argument(
            batch is None or isinstance(batch, (list, torch.Tensor)),
            f"`batch_x` and `batch_y` must be torch.Tensors or lists, but `{name}` is {type(batch).__name__}.",
        )
    # the vendor's library has an operator for each form
    if isinstance(batch_x, list) and isinstance(batch_y, list):
        return torch.ops.poptorch.nearest_batch_list(x, y, batch_x, batch_y)
    return torch.ops.poptorch.nearest(x, y, _convert_batch(batch_x, batch_y), _convert_batch(batch_y, batch_x))


def _convert_batch(batch: _Batch, other: _Batch) -> Optional[torch.Tensor]:
    """Make a tensor of a list, of the type and on the device of the other batch."""
    if not isinstance(batch, list):
        return batch
    if isinstance(other, torch.Tensor):
        return torch.tensor(batch, dtype=other.dtype, device=other.device)
    return torch.tensor(batch)


def _count_sampled(ptr: Sequence[int], ratio: float) -> List[int]:
    """Return how many points of each set are kept, of which `ptr` gives the borders."""
    return [math.ceil((end - start) * ratio) for start, end in zip(ptr, ptr[1:])]


def _sample_points(src: torch.Tensor, ptr: Sequence[int], ratio: float, random_start: bool) -> torch.Tensor:
    """Take of each set its first point (or one at random), then again and again the one farthest from all taken."""
    chosen = [torch.empty(0, dtype=torch.int64)]
    for start, end, count in zip(ptr, ptr[1:], _count_sampled(ptr, ratio)):
        points = src[start:end].reshape(end - start, -1).float()
        if count:
            # indices stay tensors: an `int` of them would wait for each point in turn
            latest = torch.randint(end - start, (1,)) if random_start else torch.zeros(1, dtype=torch.int64)
            distances = _compute_distances(points, latest)
            chosen.append(latest + start)
        for _ in range(count - 1):
            latest = distances.argmax().reshape(1)
            distances = torch.minimum(distances, _compute_distances(points, latest))
            chosen.append(latest + start)
    return torch.cat(chosen)


def _compute_distances(points: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return (points - points.index_select(0, index)).square().sum(dim=1)


def _find_nearest(x: torch.Tensor, y: torch.Tensor, batch_x: _Batch = None, batch_y: _Batch = None) -> torch.Tensor:
    distances = torch.cdist(x.reshape(x.shape[0], -1).float(), y.reshape(y.shape[0], -1).float())
    if batch_x is not None or batch_y is not None:
        of_x, of_y = _read_batch(batch_x, x), _read_batch(batch_y, y)
        distances = distances.masked_fill(of_x.unsqueeze(1) != of_y.unsqueeze(0), math.inf)
    return distances.argmin(dim=1)


def _read_batch(batch: _Batch, rows: torch.Tensor) -> torch.Tensor:
    """Return the batch number of each of `rows`: 0 where none is given."""
    if batch is None:
        return rows.new_zeros(rows.shape[0], dtype=torch.int64)
    return batch if isinstance(batch, torch.Tensor) else torch.tensor(batch, dtype=torch.int64)


# -- on the device -----------------------------------------------------------------------------------------------------


def _infer_sampled(src: torch.Tensor, ptr: Sequence[int], ratio: float, _random_start: bool) -> torch.Tensor:
    return src.new_empty(sum(_count_sampled(ptr, ratio)), dtype=torch.int64)


def _infer_nearest(x: torch.Tensor, _y: torch.Tensor, *_batches: object) -> torch.Tensor:
    return x.new_empty(x.shape[0], dtype=torch.int64)


define_operator(
    "fps(Tensor src, int[] ptr, float ratio, bool random_start) -> Tensor",
    _sample_points,
    is_random=True,
    shape=_infer_sampled,
)
define_operator(
    "nearest(Tensor x, Tensor y, Tensor? batch_x=None, Tensor? batch_y=None) -> Tensor",
    _find_nearest,
    shape=_infer_nearest,
)
define_operator(
    "nearest_batch_list(Tensor x, Tensor y, int[] batch_x, int[] batch_y) -> Tensor",
    _find_nearest,
    shape=_infer_nearest,
)
