"""Sampling and matching of points: the arithmetic of `poptorch.fps` and `poptorch.nearest`."""

from __future__ import annotations

import math
from typing import List, Optional, Sequence, Union

import torch

__all__ = ["farthest_points", "nearest_rows", "num_sampled"]


def num_sampled(ptr: Sequence[int], ratio: float) -> List[int]:
    """Return how many points of each set are kept, of which `ptr` gives the borders.

    >>> num_sampled([0, 4, 9], ratio=0.5)
    [2, 3]
    """
    return [math.ceil((end - start) * ratio) for start, end in zip(ptr, ptr[1:])]


def farthest_points(src: torch.Tensor, ptr: Sequence[int], ratio: float, random_start: bool) -> torch.Tensor:
    """Return the indices of points that are far from each other, set after set, int64.

    Row `ptr[i]` to `ptr[i + 1]` of `src` [N, D] are one set. Of each, the first point (or one at random) is taken,
    then again and again the one that is farthest from all taken so far, until `ratio` of them are.
    """
    points = src.reshape(src.shape[0], -1).float()
    chosen = []
    for start, end, count in zip(ptr, ptr[1:], num_sampled(ptr, ratio)):
        if count:
            first = torch.randint(end - start, (1,)) if random_start else torch.zeros(1, dtype=torch.int64)
            chosen.append(_farthest_in(points[start:end], first, count) + start)
    return torch.cat(chosen) if chosen else torch.empty(0, dtype=torch.int64)


def _farthest_in(points: torch.Tensor, first: torch.Tensor, count: int) -> torch.Tensor:
    taken = [first]
    distances = _squared_distances(points, first)
    for _ in range(count - 1):
        taken.append(distances.argmax().reshape(1))
        distances = torch.minimum(distances, _squared_distances(points, taken[-1]))
    return torch.cat(taken)


def _squared_distances(points: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return (points - points.index_select(0, index)).square().sum(dim=1)


_Batch = Optional[Union[torch.Tensor, Sequence[int]]]


def nearest_rows(x: torch.Tensor, y: torch.Tensor, batch_x: _Batch = None, batch_y: _Batch = None) -> torch.Tensor:
    """Return for each row of `x` [N, D] the index of the nearest row of `y` [M, D] in the same batch, int64 [N]."""
    distances = torch.cdist(x.reshape(x.shape[0], -1).float(), y.reshape(y.shape[0], -1).float())
    if batch_x is not None or batch_y is not None:
        of_x, of_y = _batch_of(batch_x, x), _batch_of(batch_y, y)
        distances = distances.masked_fill(of_x.unsqueeze(1) != of_y.unsqueeze(0), math.inf)
    return distances.argmin(dim=1)


def _batch_of(batch: _Batch, rows: torch.Tensor) -> torch.Tensor:
    if batch is None:
        return torch.zeros(rows.shape[0], dtype=torch.int64, device=rows.device)
    return batch if isinstance(batch, torch.Tensor) else torch.tensor(batch, dtype=torch.int64)
