"""The simulator's `DataLoader` against PopTorch's documented behaviour and against torch's own loader."""

from __future__ import annotations

import logging
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import Dataset, IterableDataset

from porting.simulator._dataloader import BatchIterator, DataLoader, WaitingTime
from porting.simulator.enums import CommGroupType
from porting.simulator.errors import Error

from .counting_datasets import Counting, batches_of, numbers, options_for, seen

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


def test_without_batching_there_is_nothing_to_drop():
    with pytest.raises(ValueError, match="mutually exclusive with drop_last"):
        DataLoader(options_for(iterations=2), numbers(3), batch_size=None)


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
    assert "batch sampler (4) is not divisible by the number of batches processed per step (3)" in caplog.text


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


def test_a_dataset_smaller_than_one_batch_is_warned_of(caplog):
    loader = DataLoader(options_for(iterations=4), numbers(10), batch_size=3)

    assert len(loader) == 0
    assert "has no batches: the dataset has 10 elements, a call processes 12" in caplog.text


def test_a_sampler_that_shows_a_small_dataset_several_times_fills_batches(caplog):
    loader = DataLoader(options_for(iterations=4), numbers(10), batch_size=3, sampler=[*range(10), *range(10)])

    assert seen(loader) == [[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]]
    assert "has no batches" not in caplog.text


def test_a_sampler_that_shows_less_than_one_batch_is_warned_of(caplog):
    loader = DataLoader(options_for(iterations=2), numbers(10), batch_size=3, sampler=[4, 5])

    assert len(loader) == 0
    assert "has no batches: the sampler has 2 elements, a call processes 6" in caplog.text


@pytest.fixture
def clock(monkeypatch):
    """Let time pass for loaders only where a test says so."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("porting.simulator._dataloader.time.perf_counter", lambda: clock.now)
    return clock


class Slow(Dataset):
    """Takes a second for each sample, by `clock`."""

    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.clock.now += 1.0
        return torch.tensor(index)


def test_a_loader_counts_what_its_batches_take(clock):
    loader = DataLoader(options_for(), Slow(clock), 2)
    before = loader.waiting_seconds

    for _batch in loader:
        pass
    once = loader.waiting_seconds
    for _batch in loader:
        pass

    assert (before, once, loader.waiting_seconds) == (0.0, 4.0, 8.0)


def test_the_time_between_batches_does_not_count(clock):
    loader = DataLoader(options_for(), Slow(clock), 2)

    for _batch in loader:
        clock.now += 100.0

    assert loader.waiting_seconds == 4.0


def test_combined_batches_of_a_sampler_count_too(clock):
    loader = DataLoader(options_for(iterations=2), Slow(clock), batch_sampler=batches_of(4, 1))

    for _batch in loader:
        pass

    assert loader.waiting_seconds == 4.0


def test_an_iterator_stays_what_it_was():
    def elements():
        yield from range(2)

    iterator = BatchIterator(elements(), WaitingTime().fetch_next)

    assert iter(iterator) is iterator
    assert list(iterator) == [0, 1]
    assert iterator.gi_frame is None
