"""Read whole batches of tensor datasets with one copy for each tensor, where torch makes one call for each sample.

The DataLoader uses it for loaders without processes of their own. Batches lie in memory that is used again as soon as
nothing refers to the batch that was in it: fresh memory costs more than filling it, since the system hands it out page
by page. `combine_batches` makes the one batch that a device call takes from several of a user's own batch sampler.
"""

from __future__ import annotations

import itertools
import sys
import threading
from functools import lru_cache
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from ...structure import flatten_tensors, rebuild
from ...torch_insides.loaders import makes_batches
from ...torch_insides.tensors import count_storage_uses, identify_storage
from ..errors import createPoptorchError
from .row_sources import Rows, RowSource, find_row_source

__all__ = ["BatchMemory", "BatchReader", "choose_batch_reader", "combine_batches"]


# The one that is filled, the one that the loop works on, and one for a loop that looks back.
_MOST_SLOTS = 3


class BatchReader:
    """Reads batches from `source` instead of torch's fetcher `ordinary`, which still gets indices that are no rows."""

    def __init__(self, source: RowSource, ordinary: Any, memory: BatchMemory, *, is_one_tensor: bool) -> None:
        self._source, self._ordinary, self._memory = source, ordinary, memory
        self._is_one_tensor, self._gets_rows = is_one_tensor, False

    def find_rows(self, batch_sampler: object) -> Optional[Iterator[Rows]]:
        """Return the batches of the sampler as rows, which are read from now on; None where its order is not known."""
        rows = _find_row_batches(batch_sampler, self._source.num_rows)
        self._gets_rows = rows is not None
        return rows

    def fetch(self, indices: Any) -> Any:
        """Return `default_collate([dataset[i] for i in indices])`, in memory that nothing else refers to."""
        rows = indices if self._gets_rows else _convert_to_rows(indices, self._source.num_rows)
        if rows is None:
            # torch handles such indices, with its own errors for those out of range
            return self._ordinary.fetch(indices)
        # not one call per sample, but one copy per column, into memory of an earlier batch that is no longer used
        batch = [
            self._memory.take(column, (len(rows), *shape), dtype)
            for column, (shape, dtype) in enumerate(self._source.columns)
        ]
        self._source.fill(rows, batch)
        return batch[0] if self._is_one_tensor else batch


def choose_batch_reader(
    loader: torch.utils.data.DataLoader, ordinary: Any, memory: BatchMemory
) -> Optional[BatchReader]:
    """Return a reader that gives this loader's batches bit for bit, or None where samples must be read one by one."""
    if loader.collate_fn is not torch.utils.data.default_collate or not makes_batches(loader):
        return None
    source = find_row_source(loader.dataset)
    if source is None:
        return None
    return BatchReader(source, ordinary, memory, is_one_tensor=isinstance(loader.dataset, torch.Tensor))


def combine_batches(batches: Iterable[Any], count: int, *, drop_last: bool) -> Iterator[Any]:
    """Yield each `count` consecutive batches as one, concatenated along dimension 0 tensor by tensor.

    The structure is that of the latest batch. An incomplete group at the end is left out with `drop_last`. Raises
    `poptorch.Error` for batches with different numbers of tensors.
    """
    iterator = iter(batches)
    while True:
        group = list(itertools.islice(iterator, count))
        if not group or (len(group) < count and drop_last):
            return
        rows = [flatten_tensors(batch, like=group[-1]) for batch in group]
        if len({len(row) for row in rows}) > 1:
            raise createPoptorchError(
                "The batches of the `batch_sampler` to combine have different numbers of tensors."
            )
        yield rebuild(group[-1], [torch.cat(column) for column in zip(*rows)])


def _find_row_batches(batch_sampler: object, num_rows: int) -> Optional[Iterator[Rows]]:
    """Return the rows that `batch_sampler` would list, drawn when it would draw them; None for an unknown one."""
    if type(batch_sampler) is not BatchSampler or type(batch_sampler.sampler) not in (SequentialSampler, RandomSampler):
        return None
    sampler: Any = batch_sampler.sampler
    num_listed, size, drop_last = len(sampler.data_source), batch_sampler.batch_size, batch_sampler.drop_last
    if num_listed > num_rows:
        return None
    if type(sampler) is SequentialSampler:
        starts = range(0, num_listed - size + 1 if drop_last else num_listed, size)
        return (range(start, min(start + size, num_listed)) for start in starts)
    if not sampler.replacement and _draws_as_known():
        return _cut_orders(_draw_orders(sampler), size, drop_last=drop_last)
    return None


def _draw_orders(sampler: Any) -> Iterator[torch.Tensor]:
    """Draw what `RandomSampler` draws: a whole order at a time, the last of which it cuts off, even to nothing."""
    num_rows, generator = len(sampler.data_source), sampler.generator
    # as torch does, so that the program's own stream continues from the same state
    if generator is None:
        seed = int(torch.empty((), dtype=torch.int64).random_().item())
        generator = torch.Generator()
        generator.manual_seed(seed)
    for _ in range(sampler.num_samples // num_rows):
        yield torch.randperm(num_rows, generator=generator)
    yield torch.randperm(num_rows, generator=generator)[: sampler.num_samples % num_rows]


def _cut_orders(orders: Iterator[torch.Tensor], size: int, *, drop_last: bool) -> Iterator[Rows]:
    """Cut `orders`, one after the other, into batches; the next order is drawn when a batch needs it."""
    rest = torch.empty(0, dtype=torch.int64)
    while True:
        # not earlier: a program may draw numbers of its own between two batches
        while len(rest) < size:
            order = next(orders, None)
            if order is None:
                if len(rest) and not drop_last:
                    yield rest
                return
            rest = torch.cat([rest, order]) if len(rest) else order
        yield rest[:size]
        rest = rest[size:]


@lru_cache(maxsize=None)
def _draws_as_known() -> bool:
    """Try out whether this version of torch draws the orders of `RandomSampler` as `_draw_orders` does."""

    def list_rows(sampler: object) -> List[int]:
        return [row for order in _draw_orders(sampler) for row in order.tolist()]

    # less than one order, and more than two
    return all(_draw_samples(list, count) == _draw_samples(list_rows, count) for count in (5, 13))


def _draw_samples(list_samples: Callable[[Any], List[int]], num_samples: int) -> Any:
    """Draw with a generator and without one; return the samples and what was left of the random streams."""
    generator = torch.Generator()
    generator.manual_seed(7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        samplers = [RandomSampler(range(5), num_samples=num_samples, generator=given) for given in (generator, None)]
        samples = [list_samples(sampler) for sampler in samplers]
        left = [int(torch.randint(1 << 30, (), generator=given)) for given in (generator, None)]
    return samples, left


def _convert_to_rows(indices: object, num_rows: int) -> Optional[Rows]:
    """Return `indices` as rows if they are nothing but positions from 0 to `num_rows`; None otherwise."""
    if isinstance(indices, range):
        is_plain = indices.step == 1 and 0 <= indices.start < indices.stop <= num_rows
        return indices if is_plain else None
    # `type`, because a bool is an int that torch's datasets take for a mask
    if isinstance(indices, list) and set(map(type, indices)) == {int}:
        indices = torch.tensor(indices, dtype=torch.int64)
    if type(indices) is not torch.Tensor or indices.dtype != torch.int64 or indices.dim() != 1 or not len(indices):
        return None
    lowest, highest = map(int, indices.aminmax())
    return indices if lowest >= 0 and highest < num_rows else None


class BatchMemory:
    """Tensors for the columns of batches; a tensor that was handed out is not reused while anything refers to it.

    Each tensor handed out is a handle of its own on the memory of a slot. Views of it, arrays that share it, storages
    and graphs of autograd count as references; a tensor that was resized or moved into shared memory is not reused.
    """

    def __init__(self) -> None:
        self._columns: Dict[int, List[_Slot]] = {}
        self._lock = threading.Lock()

    def take(self, column: int, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a contiguous tensor with any values in it."""
        with self._lock:
            slots = self._columns.setdefault(column, [])
            slot = next((slot for slot in slots if slot.is_free_for(shape, dtype)), None)
            if slot is None:
                slot = _Slot(shape, dtype)
                if len(slots) == _MOST_SLOTS:
                    # a holder of its tensor keeps the memory
                    del slots[0]
                slots.append(slot)
            return slot.base.detach()

    def __reduce__(self) -> Tuple[Any, ...]:
        # a copied or pickled loader begins without memory: what was handed out is the original's
        return BatchMemory, ()


class _Slot:
    """A tensor that only this module knows, and the number of references to its memory while it is unused."""

    def __init__(self, shape: Tuple[int, ...], dtype: torch.dtype) -> None:
        self.base = torch.empty(shape, dtype=dtype)
        self._storage = self.base.untyped_storage()
        self._form = (self._storage.data_ptr(), self._storage.nbytes())
        self._num_references_when_free = self._count_references()

    def is_free_for(self, shape: Tuple[int, ...], dtype: torch.dtype) -> bool:
        """Tell whether it has this form and torch's present inference mode, and nothing outside refers to it."""
        base = self.base
        # no variable may refer to the storage while the references are counted
        return (
            base.shape == shape
            and base.dtype == dtype
            and base.is_inference() == torch.is_inference_mode_enabled()
            and count_storage_uses is not None
            and self._count_references() == self._num_references_when_free
            # it was neither resized nor moved into shared memory
            and (self._storage.data_ptr(), self._storage.nbytes()) == self._form
            and not self._storage.is_shared()
        )

    def _count_references(self) -> Tuple[int, int]:
        # tensors and graphs refer to the storage of its Python object, which users may hold as well
        uses = count_storage_uses(identify_storage(self._storage)) if count_storage_uses is not None else 0
        return uses, sys.getrefcount(self._storage)
