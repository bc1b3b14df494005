"""Batches of tensor datasets that are read at once: bit for bit those that torch puts together from samples."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import Dataset, RandomSampler, SequentialSampler, Subset, TensorDataset, random_split

from porting.simulator._dataloader import DataLoader
from porting.simulator._loading import batch_reading

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


def reading_one_by_one(monkeypatch):
    """Let loaders read samples as torch does."""
    monkeypatch.setattr("porting.simulator._dataloader.choose_batch_reader", lambda *_args: None)


def epochs(loader, count=2):
    return [[[column.clone() for column in batch] for batch in loader] for _ in range(count)]


def same(ours, theirs):
    return all(
        len(one) == len(other) and all(torch.equal(a, b) for x, y in zip(one, other) for a, b in zip(x, y))
        for one, other in zip(ours, theirs)
    )


SAMPLERS = {
    "in order": lambda data, drop_last: {"batch_size": 2, "drop_last": drop_last},
    "shuffled": lambda data, drop_last: {"batch_size": 2, "shuffle": True, "drop_last": drop_last},
    "a part of a shuffle": lambda data, drop_last: {
        "batch_size": 2,
        "sampler": RandomSampler(data, num_samples=9),
        "drop_last": drop_last,
    },
    "several shuffles": lambda data, drop_last: {
        "batch_size": 2,
        "sampler": RandomSampler(data, num_samples=25),
        "drop_last": drop_last,
    },
    "with replacement": lambda data, drop_last: {
        "batch_size": 2,
        "sampler": RandomSampler(data, replacement=True),
        "drop_last": drop_last,
    },
    "by weight": lambda data, drop_last: {
        "batch_size": 2,
        "sampler": torch.utils.data.WeightedRandomSampler([1.0] * 11, 11),
        "drop_last": drop_last,
    },
    "a list": lambda data, drop_last: {"batch_size": 2, "sampler": [3, 1, 10, 0, 0], "drop_last": drop_last},
    "a list of batches": lambda data, drop_last: {"batch_sampler": [[3, 1], [10], [0, 0, 2]], "drop_last": drop_last},
    "batches as tensors": lambda data, drop_last: {
        "batch_sampler": list(torch.randperm(10).split(3)),
        "drop_last": drop_last,
    },
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("with_generator", [True, False], ids=["own generator", "torch's generator"])
@pytest.mark.parametrize("settings", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_batches_order_and_random_streams_are_those_of_torch(settings, with_generator, drop_last, monkeypatch):
    data = awkward_tensors(11)

    def loaded():
        torch.manual_seed(5)
        given = {"generator": torch.Generator().manual_seed(1)} if with_generator else {}
        loader = DataLoader(options_for(iterations=2), data, **settings(data, drop_last), **given)
        found = epochs(loader)
        return found, [torch.rand(1, generator=generator) for generator in (given.get("generator"), None)]

    ours, our_streams = loaded()
    reading_one_by_one(monkeypatch)
    theirs, their_streams = loaded()

    assert same(ours, theirs)
    assert our_streams == their_streams


def test_the_random_stream_is_drawn_from_when_torch_draws_from_it(monkeypatch):
    def drawn():
        generator = torch.Generator().manual_seed(1)
        loader = DataLoader(options_for(), numbers(10), 4, shuffle=True, drop_last=False, generator=generator)
        return [(batch.tolist(), int(torch.randint(1 << 20, (), generator=generator))) for (batch,) in loader]

    ours = drawn()
    reading_one_by_one(monkeypatch)

    assert ours == drawn()


def test_memory_of_batches_is_used_again():
    loader = DataLoader(options_for(), numbers(100), 4, shuffle=True)

    places = {batch.data_ptr() for _ in range(2) for (batch,) in loader}

    assert len(places) == 2


def test_batches_that_a_user_keeps_never_change():
    loader = DataLoader(options_for(), numbers(40), 4)

    kept = [batch for _ in range(3) for batch in loader]
    views = [batch[0][1:3].numpy() for batch in loader]

    assert [batch.tolist() for (batch,) in kept] == [list(range(i, i + 4)) for _ in range(3) for i in range(0, 40, 4)]
    assert [view.tolist() for view in views] == [[i + 1, i + 2] for i in range(0, 40, 4)]


def test_two_iterations_at_once_do_not_share_memory():
    loader = DataLoader(options_for(), numbers(12), 4)

    pairs = [(one[0].tolist(), other[0].tolist()) for one, other in zip(loader, loader)]

    assert all(one == other for one, other in pairs)


def test_a_tensor_is_a_dataset():
    batches = list(DataLoader(options_for(), torch.arange(8).reshape(4, 2), 2))

    assert [batch.tolist() for batch in batches] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]


def test_indices_out_of_range_are_torchs_errors():
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        next(iter(DataLoader(options_for(), numbers(4), 2, sampler=[0, 9])))


def test_samples_without_batches_are_left_to_torch():
    loader = DataLoader(options_for(), numbers(3), None, drop_last=False)

    assert [sample[0].tolist() for sample in loader] == [0, 1, 2]


def test_a_sampler_of_another_dataset_may_be_given():
    loader = DataLoader(options_for(), numbers(9), 2, sampler=SequentialSampler(range(4)))

    assert seen(loader) == [[0, 1], [2, 3]]


def test_a_version_of_torch_that_draws_otherwise_is_followed(monkeypatch):
    monkeypatch.setattr("porting.simulator._loading.batch_reading._draws_as_known", lambda: False)
    generator, other = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)

    ours = seen(DataLoader(options_for(), numbers(8), 2, shuffle=True, generator=generator))

    assert ours == seen(torch.utils.data.DataLoader(numbers(8), 2, shuffle=True, generator=other))


def test_this_version_of_torch_draws_as_known():
    assert batch_reading._draws_as_known()
