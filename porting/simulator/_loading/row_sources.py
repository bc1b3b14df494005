"""Recognise datasets that are rows of tensors, or one process's share of such: whole batches are copied at once.

The batch reader and the producer use it. Rows are a `range` of step 1 where they follow each other, or a
one-dimensional int64 tensor of positions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from ..options import Options

__all__ = ["RowSource", "Rows", "_SubDataset", "find_row_source"]

Rows = Union[range, torch.Tensor]
_Tensors = Sequence[torch.Tensor]


class RowSource(NamedTuple):
    """`num_rows` rows, whose `columns` have a shape and a type each; `fill(rows, batch)` copies some into tensors.

    Positions outside of `num_rows` are not allowed, nor counting from the end.
    """

    num_rows: int
    columns: List[Tuple[Tuple[int, ...], torch.dtype]]
    fill: Callable[[Rows, _Tensors], None]


def find_row_source(dataset: Any) -> Optional[RowSource]:
    """Return the rows that `dataset[index]` reads one by one; None where its samples may be something else.

    It may be a tensor, a `TensorDataset`, or a subset, a concatenation, a process's share or a padded form of such. A
    class that reads its samples in another way than these is not inspected.
    """
    if _has_plain_rows(dataset):
        return _read_tensors([dataset])
    if isinstance(dataset, TensorDataset):
        # a derived class may read its samples in another way
        names = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
        reads_alike = all(getattr(type(dataset), name, None) is getattr(TensorDataset, name, None) for name in names)
        is_readable = reads_alike and all(map(_has_plain_rows, dataset.tensors))
        return _read_tensors(dataset.tensors) if is_readable and dataset.tensors else None
    # of the following, a derived class may read in another way, so that its own samples are read
    if type(dataset) is Subset:
        return _read_subset(find_row_source(dataset.dataset), dataset.indices)
    if type(dataset) is _SubDataset:
        inner = find_row_source(dataset.dataset)
        # translated at each batch, because the order changes from epoch to epoch
        return None if inner is None else _translate_rows(inner, len(dataset), dataset.find_global_rows)
    if type(dataset) is ConcatDataset:
        return _join_sources([find_row_source(part) for part in dataset.datasets])
    if "as_padded_rows" in vars(type(dataset)):
        return _pad_source(*dataset.as_padded_rows())
    return None


def _has_plain_rows(value: object) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.dim() > 0
        and not (value.requires_grad or value.is_quantized or value.is_complex() or value.is_neg())
    )


def _read_tensors(tensors: _Tensors) -> RowSource:
    def fill(rows: Rows, batch: _Tensors) -> None:
        for tensor, target in zip(tensors, batch):
            if isinstance(rows, range):
                target.copy_(tensor.narrow(0, rows.start, len(rows)))
            else:
                torch.index_select(tensor, 0, rows, out=target)

    return RowSource(len(tensors[0]), [(tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors], fill)


def _translate_rows(inner: RowSource, num_rows: int, translate: Callable[[Rows], Rows]) -> RowSource:
    """Read rows of another source, at the positions that `translate` makes of the requested ones."""
    return inner._replace(num_rows=num_rows, fill=lambda rows, batch: inner.fill(translate(rows), batch))


def _read_subset(inner: Optional[RowSource], indices: object) -> Optional[RowSource]:
    """Read a subset's indices once and for all, where they are positions in `inner` and nothing else."""
    if inner is None:
        return None
    table: Rows
    if isinstance(indices, range) and indices.step == 1:
        table = indices
    elif isinstance(indices, (list, range)) and set(map(type, indices)) <= {int}:
        table = torch.tensor(indices, dtype=torch.int64)
    else:
        return None
    if len(table):
        lowest, highest = (table[0], table[-1]) if isinstance(table, range) else map(int, table.aminmax())
        if lowest < 0 or highest >= inner.num_rows:
            return None
    return _translate_rows(inner, len(table), partial(_choose_rows, table))


def _choose_rows(table: Rows, rows: Rows) -> Rows:
    if isinstance(rows, range):
        return table[rows.start : rows.stop]
    return rows + table.start if isinstance(table, range) else table.index_select(0, rows)


def _join_sources(parts: Sequence[Optional[RowSource]]) -> Optional[RowSource]:
    """Join sources one after the other, where all are known and have the same columns."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(part.columns != known[0].columns for part in known):
        return None

    def fill(rows: Rows, batch: _Tensors) -> None:
        # A range is copied piece by piece; positions in any order are gathered from one source after the other and
        # scattered to where they belong.
        first = 0
        for part in known:
            if isinstance(rows, range):
                start, stop = max(rows.start, first), min(rows.stop, first + part.num_rows)
                if start < stop:
                    targets = [target.narrow(0, start - rows.start, stop - start) for target in batch]
                    part.fill(range(start - first, stop - first), targets)
            else:
                where = ((rows >= first) & (rows < first + part.num_rows)).nonzero().squeeze(1)
                if len(where):
                    found = [torch.empty((len(where), *shape), dtype=dtype) for shape, dtype in part.columns]
                    part.fill(rows.index_select(0, where) - first, found)
                    for target, values in zip(batch, found):
                        target.index_copy_(0, where, values)
            first += part.num_rows

    return known[0]._replace(num_rows=sum(part.num_rows for part in known), fill=fill)


def _pad_source(dataset: Any, num_rows: int, label: object, fill_value: int) -> Optional[RowSource]:
    """Append row 0 of the dataset to its rows, again and again and with another label."""
    inner = find_row_source(dataset)
    if inner is None or num_rows == inner.num_rows:
        return inner
    # a sample that is no tuple of tensors has its label elsewhere
    if not isinstance(label, int) or not isinstance(dataset, torch.utils.data.Dataset):
        return None
    num_real, fill_inner = inner.num_rows, inner.fill

    def fill(rows: Rows, batch: _Tensors) -> None:
        if isinstance(rows, range) and rows.stop <= num_real:
            fill_inner(rows, batch)
            return
        # padding is read as row 0, as a single sample would be, and only then labelled
        positions = torch.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        is_padding = positions >= num_real
        fill_inner(positions.masked_fill(is_padding, 0), batch)
        batch[label][is_padding] = fill_value

    return inner._replace(num_rows=num_rows, fill=fill)


class _SubDataset(torch.utils.data.Dataset):
    """The contiguous range of `dataset` that belongs to this process, of the dataset as it is or shuffled globally.

    `step` is the number of samples of a combined batch. With `drop_last` all processes get the same number of whole
    batches; otherwise their lengths differ by one sample at most, and nothing is left over. Order and range lie in
    shared memory, so that loading processes that were started before see every change.
    """

    def __init__(self, dataset: Any, opts: Options, step: int, drop_last: bool) -> None:
        num_samples = len(dataset)
        num_processes, process = opts.Distributed.numProcesses, opts.Distributed.processId
        if drop_last:
            per_process = step * (num_samples // (step * num_processes))
            self._base_offset = process * per_process
            self._length = min(per_process, num_samples - self._base_offset)
            # those that no process has: `swap_range` begins after them every other epoch
            self._leftovers = num_samples % per_process if per_process else 0
        else:
            per_process, rest = divmod(num_samples, num_processes)
            self._base_offset = process * per_process + min(process, rest)
            self._length = per_process + (rest > process)
            self._leftovers = 0
        self.dataset = dataset
        self._seed: Optional[int] = opts.random_seed if opts.exists("random_seed") else None
        self._generator_state: Optional[torch.Tensor] = None
        self._shared_offset = torch.tensor(self._base_offset).share_memory_()
        self._global_indices: Optional[torch.Tensor] = None

    def shuffle_global_indices(self) -> None:
        """Draw the next order of the whole dataset, the same one in all processes; AssertionError without a seed."""
        advice = "Seed must be set when shuffling so that all instances end up with the same shuffled global indices."
        if self._seed is None:
            raise AssertionError(advice)
        # from its state, because a generator itself cannot be pickled
        generator = torch.Generator().manual_seed(self._seed)
        if self._generator_state is not None:
            generator.set_state(self._generator_state)
        if self._global_indices is None:
            self._global_indices = torch.empty(len(self.dataset), dtype=torch.int64).share_memory_()
        torch.randperm(len(self.dataset), generator=generator, out=self._global_indices)
        self._generator_state = generator.get_state()

    def swap_range(self) -> None:
        """Begin the range alternately at its base and after the left-over samples, so that those are loaded too."""
        is_at_base = int(self._shared_offset) == self._base_offset
        self._shared_offset.fill_(self._base_offset + (self._leftovers if is_at_base else 0))

    def read_order_state(self) -> Tuple[Optional[torch.Tensor], int]:
        """Return the state that decides the next order: that of the generator, and the start of the range."""
        return self._generator_state, int(self._shared_offset)

    def restore_order_state(self, state: Tuple[Optional[torch.Tensor], int]) -> None:
        """Restore an earlier `read_order_state`: the next order is the one that followed it."""
        self._generator_state, offset = state
        self._shared_offset.fill_(offset)

    def find_global_rows(self, rows: Rows) -> Rows:
        """Translate positions in this share, all of them inside it, to positions in the dataset."""
        offset = int(self._shared_offset)
        if isinstance(rows, range):
            rows = range(rows.start + offset, rows.stop + offset)
            return rows if self._global_indices is None else self._global_indices[rows.start : rows.stop]
        return rows + offset if self._global_indices is None else self._global_indices[rows + offset]

    def __len__(self) -> int:
        """Count the samples of this process."""
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return a sample of this process's range; outside of it an IndexError."""
        return self.dataset[self._find_global_index(index)]

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """Return several samples, read at once where the dataset can."""
        translated = [self._find_global_index(index) for index in indices]
        read_at_once = getattr(self.dataset, "__getitems__", None)
        return read_at_once(translated) if read_at_once else [self.dataset[index] for index in translated]

    def _find_global_index(self, index: int) -> int:
        if not 0 <= index < self._length:
            raise IndexError(f"index {index} is out of range for the {self._length} samples of this process")
        position = int(self._shared_offset) + index
        return position if self._global_indices is None else int(self._global_indices[position])
