"""The batches of a proof: every run is handed copies, so that no run's changes reach another one or the user."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOfAny
from typing import AbstractSet, Any, Dict, Iterable, Iterator, List, Tuple, Union

import torch

from porting.structure import flatten_tensors, map_tensors

__all__ = ["Calls", "MicroBatch", "are_same_tensors", "copy_tensors"]

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

    def list_changed(self, number: int, taken: MicroBatch) -> Dict[str, torch.Tensor]:
        """List the tensors of a copy of batch `number` that are not any more what they were when it was taken."""
        pairs = zip(flatten_tensors(self._batches[number]), flatten_tensors(taken))
        changed = ((place, now) for place, (was, now) in enumerate(pairs) if not are_same_tensors(was, now))
        return {f"tensor {place} of the batch": now for place, now in changed}


def copy_tensors(batch: Any) -> Any:
    """Return a batch whose tensors are copies; what was one tensor in two places is one again."""
    copies: Dict[int, torch.Tensor] = {}

    def copy_one(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in copies:
            copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return copies[id(tensor)]

    return map_tensors(copy_one, batch)


def are_same_tensors(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors have the same shape, type and elements, NaN included."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(one, other) or ((one == other) | (one.isnan() & other.isnan())).all())
