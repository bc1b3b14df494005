"""Datasets that are rows of tensors, in every form, against their own samples one by one."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset

from porting.adapters import FixedBatchDataset
from porting.simulator._dataloader import _SubDataset
from porting.simulator._loading.row_sources import find_row_source

from ..counting_datasets import options_for


def tensors(count, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(count, 3, generator=generator), torch.randint(9, (count,), generator=generator, dtype=torch.int16)
    )


class Named(TensorDataset):
    """Reads its samples as the class it is derived from."""

    def __init__(self, count):
        super().__init__(*tensors(count).tensors)


def share_of(dataset, *, shuffled):
    options = options_for().randomSeed(3)
    options.Distributed.configureProcessId(1, 2)
    share = _SubDataset(dataset, options, 4, True)
    if shuffled:
        share.shuffle_global_indices()
    return share


KNOWN = {
    "tensors": lambda: tensors(12),
    "a tensor": lambda: torch.arange(24.0).reshape(12, 2),
    "a derived class": lambda: Named(12),
    "a subset": lambda: Subset(tensors(30), [3, 29, 0, 7, 7, 5, 4, 11, 2, 1, 8, 9]),
    "a subset in order": lambda: Subset(tensors(30), range(5, 17)),
    "a subset backwards": lambda: Subset(tensors(30), range(16, 4, -1)),
    "a subset of a subset": lambda: Subset(Subset(tensors(30), range(20, 2, -1)), list(range(3, 15))),
    "a concatenation": lambda: ConcatDataset([tensors(5), tensors(4, seed=1), Subset(tensors(9, seed=2), [8, 0, 4])]),
    "a subset of a concatenation": lambda: Subset(ConcatDataset([tensors(5), tensors(9)]), list(range(13, 1, -1))),
    "a share": lambda: share_of(tensors(24), shuffled=False),
    "a shuffled share": lambda: share_of(tensors(24), shuffled=True),
    "a padded form": lambda: FixedBatchDataset(tensors(9), 4),
    "a padded form that needs none": lambda: FixedBatchDataset(tensors(12), 4),
    "a padded form of a concatenation": lambda: FixedBatchDataset(ConcatDataset([tensors(5), tensors(4)]), 4, label=1),
    "a subset of a padded form": lambda: Subset(FixedBatchDataset(tensors(9), 4), list(range(11, -1, -1))),
}

ROWS = {
    "all": range(12),
    "some in order": range(4, 10),
    "the last": range(11, 12),
    "in any order": torch.tensor([11, 0, 3, 3, 9, 10, 1]),
}


def columns_of(batch):
    return [batch] if isinstance(batch, torch.Tensor) else list(batch)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN.keys())
def test_rows_are_the_samples_of_the_dataset(make, rows):
    dataset = make()
    source = find_row_source(dataset)
    expected = columns_of(torch.utils.data.default_collate([dataset[int(row)] for row in rows]))

    batch = [torch.empty((len(rows), *shape), dtype=dtype) for shape, dtype in source.columns]
    source.fill(rows, batch)

    assert source.num_rows == len(dataset)
    assert len(batch) == len(expected)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(batch, expected))


class Doubling(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * tensor for tensor in super().__getitem__(index))


class AtOnce(TensorDataset):
    def __getitems__(self, indices):
        return [self[index] for index in reversed(indices)]


class Padded(FixedBatchDataset):
    def __getitem__(self, index):
        return super().__getitem__(0)


class Plain(Dataset):
    def __getitem__(self, index):
        return torch.ones(2)


UNKNOWN = {
    "samples of its own": lambda: Doubling(torch.ones(4)),
    "several samples of its own": lambda: AtOnce(torch.ones(4)),
    "any dataset": Plain,
    "a list": lambda: [torch.ones(2)],
    "a trainable tensor": lambda: TensorDataset(torch.ones(4, requires_grad=True)),
    "a sparse tensor": lambda: TensorDataset(torch.ones(4, 2).to_sparse()),
    "a parameter": lambda: TensorDataset(torch.nn.Parameter(torch.ones(4), requires_grad=False)),
    "a subset from the end": lambda: Subset(tensors(4), [-1, 0]),
    "a subset beyond the end": lambda: Subset(tensors(4), [4]),
    "a subset of truths": lambda: Subset(tensors(4), [True, False]),
    "columns of different types": lambda: ConcatDataset([tensors(4), TensorDataset(torch.ones(2, 3), torch.ones(2))]),
    "columns of different shapes": lambda: ConcatDataset(
        [TensorDataset(torch.ones(2, 3)), TensorDataset(torch.ones(2))]
    ),
    "a concatenation with another": lambda: ConcatDataset([tensors(4), Doubling(torch.ones(4))]),
    "padding of its own": lambda: Padded(tensors(9), 4),
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_what_reads_samples_in_another_way_is_left_alone(make):
    assert find_row_source(make()) is None
