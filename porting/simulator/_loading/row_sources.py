"""Datasets that are rows of tensors: whole batches of them are copied at once, without asking for single samples.

Rows are a `range` of step 1 where they follow each other, or a one-dimensional int64 tensor of positions.
"""

from __future__ import annotations

from typing import Any, List, Optional, Protocol, Sequence, Tuple, Union

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .sub_dataset import _SubDataset

__all__ = ["Column", "RowSource", "Rows", "row_source"]

Rows = Union[range, torch.Tensor]

Column = Tuple[Tuple[int, ...], torch.dtype]
"""The shape of a row, and its type."""


class RowSource(Protocol):
    """Rows of several columns. Positions outside of `num_rows` are not allowed, nor counting from the end."""

    num_rows: int
    columns: Sequence[Column]

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        """Copy `rows` into `batch`, a tensor for each column."""


def row_source(dataset: Any) -> Optional[RowSource]:
    """Return the rows that `dataset[index]` reads one by one; None where its samples may be anything else.

    It may be a tensor, a `TensorDataset`, or a subset, a concatenation, a process's share or a padded form of such. A
    class that reads its samples in another way than these is not looked into.
    """
    if _has_plain_rows(dataset):
        return _TensorRows([dataset])
    if isinstance(dataset, TensorDataset):
        tensors = dataset.tensors if _reads_like(dataset, TensorDataset) else ()
        return _TensorRows(tensors) if tensors and all(map(_has_plain_rows, tensors)) else None
    if type(dataset) is Subset:
        return _subset(dataset)
    if type(dataset) is _SubDataset:
        inner = row_source(dataset._dataset)
        return None if inner is None else _ShareRows(inner, dataset)
    if type(dataset) is ConcatDataset:
        return _concatenation([row_source(part) for part in dataset.datasets])
    # the class itself has to say so: one that is derived from it may read in another way
    if "as_padded_rows" in vars(type(dataset)):
        return _padded(*dataset.as_padded_rows())
    return None


class _TensorRows:
    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self.num_rows = len(tensors[0])
        self.columns: Sequence[Column] = [(tuple(tensor.shape[1:]), tensor.dtype) for tensor in tensors]

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        for tensor, target in zip(self._tensors, batch):
            if isinstance(rows, range):
                target.copy_(tensor.narrow(0, rows.start, len(rows)))
            else:
                torch.index_select(tensor, 0, rows, out=target)


class _ChosenRows:
    """Rows of another source, by a table of their positions in it, or the first of them where they are in order."""

    def __init__(self, inner: RowSource, table: Rows) -> None:
        self._inner, self._table = inner, table
        self.num_rows, self.columns = len(table), inner.columns

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        table = self._table
        if isinstance(rows, range):
            chosen = table[rows.start : rows.stop]
        else:
            chosen = rows + table.start if isinstance(table, range) else table.index_select(0, rows)
        self._inner.fill(chosen, batch)


class _ShareRows:
    """The rows of one process, as they lie in the dataset at this moment."""

    def __init__(self, inner: RowSource, share: _SubDataset) -> None:
        self._inner, self._share = inner, share
        self.num_rows, self.columns = len(share), inner.columns

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        self._inner.fill(self._share.global_rows_of(rows), batch)


class _JoinedRows:
    """Rows of several sources, one behind the other."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        self._parts = parts
        self.num_rows = sum(part.num_rows for part in parts)
        self.columns = parts[0].columns

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        first = 0
        for part in self._parts:
            if isinstance(rows, range):
                self._fill_range(part, rows, first, batch)
            else:
                where = ((rows >= first) & (rows < first + part.num_rows)).nonzero().squeeze(1)
                if len(where):
                    found = _empty(part.columns, len(where))
                    part.fill(rows.index_select(0, where) - first, found)
                    for target, values in zip(batch, found):
                        target.index_copy_(0, where, values)
            first += part.num_rows

    def _fill_range(self, part: RowSource, rows: range, first: int, batch: Sequence[torch.Tensor]) -> None:
        start, stop = max(rows.start, first), min(rows.stop, first + part.num_rows)
        if start < stop:
            targets = [target.narrow(0, start - rows.start, stop - start) for target in batch]
            part.fill(range(start - first, stop - first), targets)


class _PaddedRows:
    """Rows of another source and, behind them, its row 0 with another label again and again."""

    def __init__(self, inner: RowSource, num_rows: int, label: int, fill_value: int) -> None:
        self._inner, self._label, self._fill_value = inner, label, fill_value
        self.num_rows, self.columns = num_rows, inner.columns

    def fill(self, rows: Rows, batch: Sequence[torch.Tensor]) -> None:
        num_real = self._inner.num_rows
        if isinstance(rows, range) and rows.stop <= num_real:
            self._inner.fill(rows, batch)
            return
        positions = torch.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        is_padding = positions >= num_real
        self._inner.fill(positions.masked_fill(is_padding, 0), batch)
        batch[self._label][is_padding] = self._fill_value


def _subset(subset: Any) -> Optional[RowSource]:
    inner = row_source(subset.dataset)
    table = _positions(subset.indices)
    return None if inner is None or table is None or not _are_within(table, inner) else _ChosenRows(inner, table)


def _positions(indices: Any) -> Optional[Rows]:
    """Read a subset's indices once and for all, where they are numbers and nothing else."""
    if isinstance(indices, range) and indices.step == 1:
        return indices
    if isinstance(indices, (list, range)) and set(map(type, indices)) <= {int}:
        return torch.tensor(indices, dtype=torch.int64)
    return None


def _are_within(table: Rows, inner: RowSource) -> bool:
    if not len(table):
        return True
    lowest, highest = (table[0], table[-1]) if isinstance(table, range) else map(int, table.aminmax())
    return 0 <= lowest and highest < inner.num_rows


def _concatenation(parts: Sequence[Optional[RowSource]]) -> Optional[RowSource]:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts) or any(list(part.columns) != list(known[0].columns) for part in known):
        return None
    return _JoinedRows(known)


def _padded(dataset: Any, num_rows: int, label: Any, fill_value: int) -> Optional[RowSource]:
    inner = row_source(dataset)
    if inner is None or num_rows == inner.num_rows:
        return inner
    # a sample that is no tuple of tensors has its label elsewhere
    is_column = isinstance(label, int) and isinstance(dataset, torch.utils.data.Dataset)
    return _PaddedRows(inner, num_rows, label, fill_value) if is_column else None


def _reads_like(dataset: Any, kind: type) -> bool:
    """Tell whether the class of `dataset` is `kind`, or derived from it without another way to read samples."""
    names = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
    return all(getattr(type(dataset), name, None) is getattr(kind, name, None) for name in names)


def _has_plain_rows(value: Any) -> bool:
    return (
        type(value) is torch.Tensor
        and value.layout is torch.strided
        and value.device.type == "cpu"
        and value.dim() > 0
        and not (value.requires_grad or value.is_quantized or value.is_complex() or value.is_neg())
    )


def _empty(columns: Sequence[Column], num_rows: int) -> List[torch.Tensor]:
    return [torch.empty((num_rows, *shape), dtype=dtype) for shape, dtype in columns]
