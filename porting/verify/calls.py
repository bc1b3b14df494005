"""Hand each run of a proof copies of the batches, so that no run's changes reach another one or the user.

A call of a port takes the rows of several batches. They are joined here from what torch's own loader gives, because a
certificate proves what the port's loader makes of it.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOfAny
from typing import AbstractSet, Any, Dict, Iterable, Iterator, List, Tuple, Union

import torch

from porting.structure import flatten_tensors, map_tensors

__all__ = [
    "Calls",
    "MicroBatch",
    "UnequalBatchesError",
    "are_same_tensors",
    "copy_tensors",
    "count_rows",
    "have_same_tensors",
    "join_rows",
]

MicroBatch = Tuple[Tuple[Any, ...], Dict[str, Any]]
"""Positional and keyword arguments of a training call."""


class Calls(SequenceOfAny):
    """The arguments of training calls, one after the other; each time that one is taken, it is a copy.

    >>> calls = Calls([((torch.zeros(2),), {})])
    >>> calls[0][0][0].add_(1.0), calls[0][0][0]
    (tensor([1., 1.]), tensor([0., 0.]))
    """

    def __init__(self, batches: Iterable[MicroBatch], epoch_ends: AbstractSet[int] = frozenset()) -> None:
        """Keep the batches themselves; nobody else is given them. `epoch_ends` are the last calls of epochs."""
        self._batches: List[MicroBatch] = list(batches)
        self._epoch_ends = epoch_ends

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: Union[int, slice]) -> Any:
        if isinstance(index, slice):
            numbers = range(*index.indices(len(self)))
            ends = {place for place, number in enumerate(numbers) if self.ends_epoch(number)}
            return Calls(self._batches[index], ends)
        return copy_tensors(self._batches[index])

    def __iter__(self) -> Iterator[MicroBatch]:
        return map(copy_tensors, self._batches)

    def repeat(self, count: int) -> Calls:
        """Return `count` of them, from the first on again and again."""
        numbers = [number % len(self) for number in range(count)]
        ends = {place for place, number in enumerate(numbers) if self.ends_epoch(number)}
        return Calls([self._batches[number] for number in numbers], ends)

    def ends_epoch(self, number: int) -> bool:
        """Tell whether an epoch of the loader ends with call `number`."""
        return number in self._epoch_ends

    def collect_changed(self, number: int, taken: MicroBatch) -> Dict[str, torch.Tensor]:
        """Collect the tensors of a copy of batch `number` that are not any more what they were when it was taken."""
        pairs = zip(flatten_tensors(self._batches[number]), flatten_tensors(taken))
        changed = ((place, now) for place, (was, now) in enumerate(pairs) if not are_same_tensors(was, now))
        return {f"tensor {place} of the batch": now for place, now in changed}


def copy_tensors(batch: object) -> Any:
    """Return a batch whose tensors are copies; what was one tensor in two places is one again."""
    copies: Dict[int, torch.Tensor] = {}

    def copy_one(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    return map_tensors(copy_one, batch)


def have_same_tensors(one: object, other: object) -> bool:
    """Tell whether two values have the same tensors inside, in the same order."""
    pair = flatten_tensors(one), flatten_tensors(other)
    return len(pair[0]) == len(pair[1]) and all(map(are_same_tensors, *pair))


def are_same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors have the same shape, type and elements, NaN included."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(one, other) or ((one == other) | (one.isnan() & other.isnan())).all())


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


def count_rows(batch: object) -> int:
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


def _split_rows(batch: object, num_rows: int) -> Tuple[Any, Any]:
    first = map_tensors(lambda tensor: tensor[:num_rows] if tensor.dim() else tensor, batch)
    rest = map_tensors(lambda tensor: tensor[num_rows:] if tensor.dim() else tensor, batch)
    return first, rest
