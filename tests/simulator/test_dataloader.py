"""The simulator's `DataLoader` against PopTorch's documented behaviour and against torch's own loader."""

from __future__ import annotations

import logging
import os
from collections import namedtuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, Dataset, IterableDataset, SequentialSampler, Subset, TensorDataset

from porting.simulator import _dataloader
from porting.simulator._dataloader import DataLoader
from porting.simulator.enums import CommGroupType, DataLoaderMode
from porting.simulator.errors import Error, NotSimulatedError
from porting.simulator.options import Options


def options_for(*, iterations=1, accumulation=1, replicas=1, processes=1):
    options = Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    options.Distributed.configureProcessId(0, processes)
    return options


def numbers(count):
    return TensorDataset(torch.arange(count))


def seen(loader):
    return [batch[0].tolist() for batch in loader]


class Counting(IterableDataset):
    """Counts to `stop`, divided between the workers."""

    def __init__(self, stop):
        self.stop = stop

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        parts = torch.arange(self.stop).chunk(worker.num_workers if worker else 1)
        return iter(parts[worker.id if worker else 0])

    def __len__(self):
        return self.stop


class Doubling(TensorDataset):
    def __getitem__(self, index):
        return tuple(2 * tensor for tensor in super().__getitem__(index))


# combined batches


def test_a_batch_holds_all_micro_batches_of_a_call():
    loader = DataLoader(options_for(iterations=2, accumulation=3, replicas=2), numbers(50), batch_size=2)

    assert loader.combinedBatchSize == 24
    assert seen(loader) == [list(range(24)), list(range(24, 48))]


def test_replicas_of_one_input_group_share_their_samples():
    options = options_for(replicas=4).inputReplicaGrouping(2, CommGroupType.Consecutive)

    assert DataLoader(options, numbers(50), batch_size=3).combinedBatchSize == 6


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_an_epoch_is_the_dataset_without_the_last_short_batch(count, batch_size, iterations, accumulation):
    loader = DataLoader(options_for(iterations=iterations, accumulation=accumulation), numbers(count), batch_size)
    size = batch_size * iterations * accumulation

    batches = seen(loader)

    assert len(batches) == len(loader) == count // size
    assert sum(batches, []) == list(range(count - count % size))


def test_the_options_are_the_object_given_and_frozen():
    options = options_for()

    loader = DataLoader(options, numbers(4))

    assert loader.options is options
    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)


def test_other_options_than_poptorchs_are_refused():
    with pytest.raises(AssertionError, match="poptorch.Options"):
        DataLoader({"device_iterations": 2}, numbers(4))


def test_without_batching_samples_pass_through_and_there_are_no_options():
    loader = DataLoader(options_for(iterations=2), numbers(3), batch_size=None, drop_last=False)

    assert seen(loader) == [0, 1, 2]
    assert loader.combinedBatchSize is None
    assert not hasattr(loader, "options")


def test_drop_last_false_keeps_the_short_batch_and_warns(caplog):
    loader = DataLoader(options_for(iterations=2), numbers(10), batch_size=2, drop_last=False)

    assert [len(batch) for batch in seen(loader)] == [4, 4, 2]
    assert "dataset (10) is not divisible by the number of elements processed per step (4)" in caplog.text
    assert "will have a batch size of 2." in caplog.text


def test_drop_last_false_says_nothing_when_all_batches_are_full(caplog):
    DataLoader(options_for(iterations=2), numbers(8), batch_size=2, drop_last=False)

    assert caplog.text == ""


def test_an_interrupted_epoch_starts_again():
    loader = DataLoader(options_for(), numbers(6), batch_size=2)
    next(iter(loader))

    assert seen(loader) == [[0, 1], [2, 3], [4, 5]]


def test_terminate_leaves_a_synchronous_loader_usable():
    loader = DataLoader(options_for(), numbers(2))

    loader.terminate()

    assert seen(loader) == [[0], [1]]


# batch samplers


def batches_of(count, size, drop_last=False):
    return BatchSampler(SequentialSampler(range(count)), size, drop_last)


def test_batches_of_a_sampler_are_combined():
    loader = DataLoader(options_for(iterations=3), numbers(12), batch_sampler=batches_of(12, 2))

    assert loader.combinedBatchSize == 6
    assert seen(loader) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_an_incomplete_group_of_batches_is_dropped():
    loader = DataLoader(options_for(iterations=3), numbers(16), batch_sampler=batches_of(16, 2))

    assert seen(loader) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_an_incomplete_group_of_batches_is_kept_on_request(caplog):
    loader = DataLoader(options_for(iterations=3), numbers(8), batch_sampler=batches_of(8, 2), drop_last=False)

    assert seen(loader) == [[0, 1, 2, 3, 4, 5], [6, 7]]
    assert "`batch_sampler` (4) is not divisible by the number of batches processed per step (3)" in caplog.text


def test_complete_groups_of_batches_leave_nothing_over(caplog):
    loader = DataLoader(options_for(iterations=2), numbers(8), batch_sampler=batches_of(8, 2), drop_last=False)

    assert seen(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert caplog.text == ""


def test_a_batch_sampler_without_length_is_warned_about(caplog):
    sampler = iter([[0, 1], [2, 3]])

    DataLoader(options_for(iterations=2), numbers(4), batch_sampler=sampler, drop_last=False)

    assert "`batch_sampler` __len__ method is not implemented and drop_last=False" in caplog.text


def test_a_batch_sampler_without_batch_size_counts_as_one():
    loader = DataLoader(options_for(iterations=2), numbers(4), batch_sampler=[[0, 1], [2, 3]])

    assert loader.combinedBatchSize == 2
    assert seen(loader) == [[0, 1, 2, 3]]


def test_single_batches_of_a_sampler_pass_through():
    loader = DataLoader(options_for(), numbers(4), batch_sampler=[[3, 2], [0]])

    assert seen(loader) == [[3, 2], [0]]


def test_combined_batches_keep_their_structure():
    Pair = namedtuple("Pair", "x y")
    samples = [{"pair": Pair(torch.tensor(i), torch.tensor(-i)), "name": "n"} for i in range(4)]

    loader = DataLoader(options_for(iterations=2), samples, batch_sampler=batches_of(4, 2))
    (batch,) = loader

    assert batch["pair"].x.tolist() == [0, 1, 2, 3]
    assert batch["pair"].y.tolist() == [0, -1, -2, -3]
    assert batch["name"] == ["n", "n"]


def test_dictionaries_are_combined_by_key_not_by_order():
    samples = [{"a": 0, "b": 10}, {"b": 11, "a": 1}]

    (batch,) = DataLoader(options_for(iterations=2), samples, batch_sampler=[[0], [1]])

    assert batch["a"].tolist() == [0, 1]
    assert batch["b"].tolist() == [10, 11]


def test_batches_with_different_numbers_of_tensors_cannot_be_combined():
    loader = DataLoader(options_for(iterations=2), [(1, 2), (3,)], batch_sampler=[[0], [1]])

    with pytest.raises(Error, match="different numbers of tensors"):
        list(loader)


@pytest.mark.parametrize("conflict", [{"batch_size": 2}, {"shuffle": True}])
def test_a_batch_sampler_excludes_batch_size_and_shuffle(conflict):
    with pytest.raises(Error, match="`batch_sampler` option is mutually exclusive with batch_size, shuffle"):
        DataLoader(options_for(), numbers(4), batch_sampler=batches_of(4, 2), **conflict)


def test_a_batch_sampler_excludes_partitioning():
    with pytest.raises(Error, match="mutually exclusive with auto_distributed_partitioning=True"):
        DataLoader(options_for(processes=2), numbers(4), batch_sampler=batches_of(4, 2))


# iterable datasets


def test_an_iterable_dataset_is_combined():
    loader = DataLoader(options_for(iterations=2), Counting(11), batch_size=2)

    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 2


def test_an_iterable_dataset_without_length_gives_a_loader_without_length():
    class Endless(IterableDataset):
        def __iter__(self):
            return iter(range(5))

    with pytest.raises(TypeError, match="'Endless' has no len()"):
        len(DataLoader(options_for(), Endless()))


@pytest.mark.filterwarnings(
    "ignore:This DataLoader will create 7 worker:UserWarning", "ignore:.*fork:DeprecationWarning"
)
def test_an_iterable_dataset_keeps_the_workers_asked_for():
    loader = DataLoader(options_for(iterations=2), Counting(101), batch_size=2, num_workers=7)
    rest = DataLoader(options_for(iterations=2), Counting(101), batch_size=3, num_workers=7, drop_last=False)

    assert len(loader) == 25
    assert [len(batch) for batch in loader] == [4] * 20
    assert sorted(len(batch) for batch in rest) == [3] * 6 + [5] + [6] * 13


def test_an_iterable_dataset_with_workers_but_no_division_is_warned_about(caplog):
    DataLoader(options_for(), Counting(4), num_workers=2)

    assert "the DataLoader will return 2 times each element in the dataset" in caplog.text


def test_an_iterable_dataset_whose_workers_are_initialised_is_not_warned_about(caplog):
    DataLoader(options_for(), Counting(4), num_workers=2, worker_init_fn=print)

    assert caplog.text == ""


# workers


@pytest.fixture
def two_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1}, raising=False)
    _dataloader._say_workers_are_capped.cache_clear()


@pytest.mark.usefixtures("two_cores")
def test_no_more_workers_than_cores_and_it_is_said_once(caplog):
    loaders = [DataLoader(options_for(), numbers(4), num_workers=64) for _ in range(2)]

    assert [loader.num_workers for loader in loaders] == [2, 2]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "num_workers=64 is more than the 2 cores of this machine" in caplog.text


@pytest.mark.usefixtures("two_cores")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
@pytest.mark.parametrize("persistent", [None, True, False])
def test_capped_workers_load_the_same_batches_in_every_epoch(persistent):
    loader = DataLoader(options_for(iterations=2), numbers(9), 2, num_workers=64, persistent_workers=persistent)

    assert [seen(loader), seen(loader)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2


def test_workers_persist_unless_told_otherwise():
    assert DataLoader(options_for(), numbers(4), num_workers=1).persistent_workers
    assert not DataLoader(options_for(), numbers(4)).persistent_workers


# several processes and asynchronous modes


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_asynchronous_modes_say_that_they_are_not_simulated(mode):
    with pytest.raises(NotSimulatedError, match=f"DataLoaderMode.{mode.name}"):
        DataLoader(options_for(), numbers(4), mode=mode)


def test_partitioning_between_processes_says_that_it_is_not_simulated():
    with pytest.raises(NotSimulatedError, match="auto_distributed_partitioning"):
        DataLoader(options_for(processes=2), numbers(4))


def test_without_partitioning_each_process_loads_everything():
    loader = DataLoader(options_for(processes=2), numbers(2), auto_distributed_partitioning=False)

    assert seen(loader) == [[0], [1]]


def test_partitioning_with_shuffling_needs_a_seed():
    with pytest.raises(AssertionError, match=r"you must set poptorch.Options.randomSeed\(\)"):
        DataLoader(options_for(processes=2), numbers(4), shuffle=True)


def test_partitioning_needs_batches():
    with pytest.raises(AssertionError, match="batch_size=None not allowed"):
        DataLoader(options_for(processes=2), numbers(4), batch_size=None)


def test_an_iterable_dataset_cannot_be_partitioned():
    with pytest.raises(AssertionError, match="auto_distributed_partitioning not supported for IterableDataset"):
        DataLoader(options_for(processes=2), Counting(4))


# reading a TensorDataset at once


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
