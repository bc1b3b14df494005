"""The batches of the reference: a loader gone through as a loop in plain PyTorch goes through it, joined to calls.

A call of a port takes the rows of several batches. They are joined here from what torch's own loader gives, because a
certificate proves what the port's loader makes of it.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, Tuple

import torch

from porting.structure import flatten_tensors, map_tensors

__all__ = ["UnequalBatchesError", "join_rows"]


class UnequalBatchesError(Exception):
    """Batches cannot be joined; the text says which tensors do not fit."""


def join_rows(batches: Iterable[Any], num_rows: int) -> Iterator[Any]:
    """Give batches of `num_rows` rows from those of an epoch; what does not fill one at its end is left out.

    What has no rows is taken from the first batch that is joined. Raises UnequalBatchesError.

    >>> [batch[0].tolist() for batch in join_rows([(torch.tensor([1, 2]),), (torch.tensor([3]),)], 3)]
    [[1, 2, 3]]
    """
    waiting: List[Any] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += count_rows(batch)
        while count >= num_rows:
            joined = _join_all(waiting)
            first, rest = _split_rows(joined, num_rows)
            yield first
            count -= num_rows
            waiting = [rest] if count else []


def count_rows(batch: Any) -> int:
    """Count the rows of a batch: those of its first tensor that has any.

    >>> count_rows({"scale": torch.tensor(1.0), "x": torch.zeros(3, 2)})
    3
    """
    return next((tensor.shape[0] for tensor in flatten_tensors(batch) if tensor.dim()), 1)


def _join_all(batches: List[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    each = [flatten_tensors(batch) for batch in batches]
    if len({len(tensors) for tensors in each}) > 1:
        counts = ", ".join(str(len(tensors)) for tensors in each)
        raise UnequalBatchesError(f"they have {counts} tensors")
    joined = []
    for tensors in zip(*each):
        shapes = {tuple(tensor.shape[1:]) for tensor in tensors}
        if len(shapes) > 1:
            described = " and ".join(str(list(tensor.shape)) for tensor in tensors[:2])
            raise UnequalBatchesError(f"their tensors have shapes {described}")
        joined.append(torch.cat(tensors) if tensors[0].dim() else tensors[0])
    parts = iter(joined)
    return map_tensors(lambda _tensor: next(parts), batches[0])


def _split_rows(batch: Any, num_rows: int) -> Tuple[Any, Any]:
    first = map_tensors(lambda tensor: tensor[:num_rows] if tensor.dim() else tensor, batch)
    rest = map_tensors(lambda tensor: tensor[num_rows:] if tensor.dim() else tensor, batch)
    return first, rest
