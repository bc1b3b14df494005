"""Batches of tensor datasets that are read at once: bit for bit those that torch puts together from samples."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset, Subset, TensorDataset, random_split

from porting.simulator._dataloader import DataLoader

from ..counting_datasets import numbers, options_for, seen


class Doubling(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * tensor for tensor in super().__getitem__(index))


def awkward_tensors(count):
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(
        torch.randn(count, 3, 2, generator=generator),
        torch.randn(count, 4, generator=generator).half(),
        torch.arange(count),
        torch.arange(count) > 3,
        torch.empty(count, 0),
    )


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_tensor_dataset_gives_the_batches_of_torchs_loader_bit_for_bit(shuffle):
    data = awkward_tensors(11)
    torch_loader = torch.utils.data.DataLoader(
        data, 4, shuffle=shuffle, drop_last=True, generator=torch.Generator().manual_seed(1)
    )
    loader = DataLoader(options_for(iterations=2), data, 2, shuffle=shuffle, generator=torch.Generator().manual_seed(1))

    pairs = list(zip(loader, torch_loader))

    assert [[type(batch) for batch in pair] for pair in pairs] == [[list, list]] * 2
    assert all(torch.equal(a, b) and a.dtype is b.dtype for ours, theirs in pairs for a, b in zip(ours, theirs))
    assert all(a.stride() == b.stride() for ours, theirs in pairs for a, b in zip(ours, theirs))


def test_a_tensor_dataset_is_not_asked_for_single_samples(monkeypatch):
    data = numbers(4)
    monkeypatch.delattr(TensorDataset, "__getitem__")

    assert seen(DataLoader(options_for(iterations=2), data, 2)) == [[0, 1, 2, 3]]


def test_writing_to_a_batch_leaves_the_dataset_alone():
    data = numbers(4)

    for (batch,) in DataLoader(options_for(), data, 2):
        batch.zero_()

    assert data.tensors[0].tolist() == [0, 1, 2, 3]


def test_a_dataset_derived_from_tensor_dataset_is_read_by_its_own_method():
    assert seen(DataLoader(options_for(), Doubling(torch.arange(4)), 4)) == [[0, 2, 4, 6]]


def test_a_collate_function_gets_samples():
    loader = DataLoader(options_for(), numbers(4), 2, collate_fn=lambda samples: [torch.tensor(len(samples))])

    assert seen(loader) == [2, 2]


def test_a_sampler_may_index_from_the_end():
    assert seen(DataLoader(options_for(), numbers(4), 2, sampler=[-1, -2])) == [[3, 2]]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(3, 4).t(),
        torch.rand(4, 3, 2, 5).to(memory_format=torch.channels_last),
        torch.rand(1, 3).expand(4, 3),
        torch.rand(4, 3, requires_grad=True),
    ],
    ids=["transposed", "channels last", "expanded", "trainable"],
)
def test_tensors_of_any_layout_are_read_as_torch_does(tensor):
    data = TensorDataset(tensor)

    (ours,), (theirs,) = (
        next(iter(DataLoader(options_for(), data, 4))),
        next(iter(torch.utils.data.DataLoader(data, 4))),
    )

    assert torch.equal(ours, theirs)
    assert (ours.stride(), ours.requires_grad) == (theirs.stride(), theirs.requires_grad)


def test_sparse_tensors_are_refused_by_torchs_collate_function():
    with pytest.raises(RuntimeError, match="Batches of sparse tensors are not currently supported"):
        next(iter(DataLoader(options_for(), TensorDataset(torch.rand(4, 3).to_sparse()), 2)))


def test_datasets_that_read_several_samples_are_asked_once_for_each_batch():
    class Several(Dataset):
        calls = 0

        def __len__(self):
            return 8

        def __getitems__(self, indices):
            self.calls += 1
            return indices

    data = Several()

    batches = [batch.tolist() for batch in DataLoader(options_for(iterations=2), data, 2)]

    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert data.calls == 2


def test_a_subset_of_a_tensor_dataset_loads_its_samples():
    assert seen(DataLoader(options_for(), Subset(numbers(9), [8, 1, 4]), 3)) == [[8, 1, 4]]


@pytest.mark.parametrize("shuffle", [False, True])
def test_subsets_of_subsets_give_the_batches_of_torchs_loader(shuffle):
    data, _rest = random_split(Subset(awkward_tensors(30), range(29, 1, -1)), [17, 11])
    torch_loader = torch.utils.data.DataLoader(data, 4, shuffle=shuffle, generator=torch.Generator().manual_seed(1))
    loader = DataLoader(options_for(), data, 4, shuffle=shuffle, generator=torch.Generator().manual_seed(1))

    for ours, theirs in zip(loader, torch_loader):
        assert all(torch.equal(a, b) and a.dtype is b.dtype for a, b in zip(ours, theirs))


def test_a_subset_of_a_tensor_dataset_is_not_asked_for_single_samples(monkeypatch):
    data = Subset(numbers(9), [8, 1, 4])
    monkeypatch.delattr(TensorDataset, "__getitem__")

    assert seen(DataLoader(options_for(), data, 3)) == [[8, 1, 4]]


def test_a_share_of_a_tensor_dataset_is_not_asked_for_single_samples(monkeypatch):
    options = options_for()
    options.Distributed.configureProcessId(1, 2)
    data = numbers(8)
    monkeypatch.delattr(TensorDataset, "__getitem__")

    assert seen(DataLoader(options, data, 2)) == [[4, 5], [6, 7]]


def test_indices_of_a_subset_may_count_from_the_end():
    assert seen(DataLoader(options_for(), Subset(numbers(9), [-1, 0]), 2)) == [[8, 0]]
