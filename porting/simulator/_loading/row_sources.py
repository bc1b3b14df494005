"""Datasets that are rows of tensors: whole batches of them are copied at once, without asking for single samples.

Rows are a `range` of step 1 where they follow each other, or a one-dimensional int64 tensor of positions.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from .sub_dataset import _SubDataset

__all__ = ["RowSource", "Rows", "find_row_source"]

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
    """Return the rows that `dataset[index]` reads one by one; None where its samples may be anything else.

    It may be a tensor, a `TensorDataset`, or a subset, a concatenation, a process's share or a padded form of such. A
    class that reads its samples in another way than these is not looked into.
    """
    if _has_plain_rows(dataset):
        return _read_tensors([dataset])
    if isinstance(dataset, TensorDataset):
        # a derived class may read its samples in another way
        names = ("__getitem__", "__getitems__", "__getattribute__", "__getattr__")
        reads_alike = all(getattr(type(dataset), name, None) is getattr(TensorDataset, name, None) for name in names)
        is_readable = reads_alike and all(map(_has_plain_rows, dataset.tensors))
        return _read_tensors(dataset.tensors) if is_readable and dataset.tensors else None
    # of the following, a class that is derived may read in another way, and is asked for its samples
    if type(dataset) is Subset:
        return _read_subset(find_row_source(dataset.dataset), dataset.indices)
    if type(dataset) is _SubDataset:
        inner = find_row_source(dataset.dataset)
        # translated at each batch, because the order changes from epoch to epoch
        return None if inner is None else _translate_rows(inner, len(dataset), dataset.global_rows_of)
    if type(dataset) is ConcatDataset:
        return _join_sources([find_row_source(part) for part in dataset.datasets])
    if "as_padded_rows" in vars(type(dataset)):
        return _pad_source(*dataset.as_padded_rows())
    return None


def _has_plain_rows(value: Any) -> bool:
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
    """Give rows of another source, found by the positions that `translate` makes of those asked for."""
    return inner._replace(num_rows=num_rows, fill=lambda rows, batch: inner.fill(translate(rows), batch))


def _read_subset(inner: Optional[RowSource], indices: Any) -> Optional[RowSource]:
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
    """Put sources one behind the other, where all are known and have the same columns."""
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


def _pad_source(dataset: Any, num_rows: int, label: Any, fill_value: int) -> Optional[RowSource]:
    """Put row 0 of the dataset behind its rows, again and again and with another label."""
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
        # padding is read as row 0, as a sample that is asked for alone would be, and only then labelled
        positions = torch.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
        is_padding = positions >= num_real
        fill_inner(positions.masked_fill(is_padding, 0), batch)
        batch[label][is_padding] = fill_value

    return inner._replace(num_rows=num_rows, fill=fill)
