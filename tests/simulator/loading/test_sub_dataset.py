"""One process's share of a dataset: together the shares are the dataset, in the same order for all."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import Dataset

from porting.simulator import _SubDataset
from porting.simulator.options import Options


def share(count, *, process=0, processes=2, step=2, drop_last=True, seed=7):
    options = Options()
    if seed is not None:
        options.randomSeed(seed)
    options.Distributed.configureProcessId(process, processes)
    return _SubDataset(range(count), options, step, drop_last)


def shares(count, processes, **settings):
    return [share(count, process=process, processes=processes, **settings) for process in range(processes)]


def samples(part):
    return [part[index] for index in range(len(part))]


@given(st.integers(0, 60), st.integers(1, 4), st.integers(1, 5))
def test_with_drop_last_all_get_the_same_number_of_whole_batches(count, processes, step):
    parts = shares(count, processes, step=step)

    per_process = step * (count // (step * processes))
    assert [len(part) for part in parts] == [per_process] * processes
    assert sum(map(samples, parts), []) == list(range(per_process * processes))


@given(st.integers(0, 60), st.integers(1, 4), st.integers(1, 5))
def test_without_drop_last_the_shares_are_the_dataset(count, processes, step):
    parts = shares(count, processes, step=step, drop_last=False)

    assert [len(part) for part in parts] == [count // processes + (count % processes > p) for p in range(processes)]
    assert sum(map(samples, parts), []) == list(range(count))


@pytest.mark.parametrize("drop_last", [True, False])
def test_shuffled_shares_do_not_overlap_in_any_epoch(drop_last):
    parts = shares(23, 3, drop_last=drop_last)

    for _ in range(4):
        for part in parts:
            part.shuffle_global_indices()
            part.swap_range()
        seen = sum(map(samples, parts), [])
        assert len(set(seen)) == len(seen) == (18 if drop_last else 23)


def test_every_epoch_has_another_order_and_other_samples():
    part = share(100, process=1)

    epochs = []
    for _ in range(4):
        part.shuffle_global_indices()
        epochs.append(samples(part))

    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len({frozenset(epoch) for epoch in epochs}) == 4


def test_the_seed_decides_the_orders():
    orders = []
    for seed in (7, 7, 8):
        part = share(50, seed=seed)
        part.shuffle_global_indices()
        part.shuffle_global_indices()
        orders.append(samples(part))

    assert orders[0] == orders[1] != orders[2]


def test_shuffling_needs_a_seed():
    with pytest.raises(AssertionError, match="Seed must be set when shuffling so that all instances end up with"):
        share(4, seed=None).shuffle_global_indices()


def test_the_samples_left_over_are_in_every_second_range():
    part = share(9, process=1)
    assert samples(part) == [4, 5, 6, 7]

    ranges = []
    for _ in range(3):
        part.swap_range()
        ranges.append(samples(part))

    assert ranges == [[5, 6, 7, 8], [4, 5, 6, 7], [5, 6, 7, 8]]


def test_a_range_without_leftovers_stays_where_it_is():
    part = share(8, process=1)

    part.swap_range()

    assert samples(part) == [4, 5, 6, 7]


@pytest.mark.parametrize("index", [4, 100, -1])
def test_indices_outside_of_the_share_are_refused(index):
    with pytest.raises(IndexError):
        share(9)[index]


def test_an_order_can_be_gone_back_to():
    part = share(9)
    part.shuffle_global_indices()
    state = part.read_order_state()
    part.shuffle_global_indices()
    part.swap_range()
    first = samples(part)

    part.restore_order_state(state)
    part.shuffle_global_indices()
    part.swap_range()

    assert samples(part) == first


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_was_started_before_sees_the_new_order():
    part = share(9)
    part.shuffle_global_indices()
    context = multiprocessing.get_context("fork")
    go, wait = context.Pipe()
    answers, answer = context.Pipe(duplex=False)
    child = context.Process(target=lambda: (wait.recv(), answer.send(samples(part))))
    child.start()

    part.shuffle_global_indices()
    part.swap_range()
    go.send(None)
    seen = answers.recv()
    child.join()

    assert seen == samples(part)


def test_several_samples_are_read_at_once_where_the_dataset_can():
    class Several(Dataset):
        def __len__(self):
            return 10

        def __getitems__(self, indices):
            return [("at once", index) for index in indices]

    options = Options()
    options.Distributed.configureProcessId(1, 2)

    assert _SubDataset(Several(), options, 1, True).__getitems__([0, 2]) == [("at once", 5), ("at once", 7)]
    assert share(10, process=1, step=5).__getitems__([0, 2]) == [5, 7]


def test_a_share_survives_pickling():
    part = share(9)
    part.shuffle_global_indices()

    assert samples(pickle.loads(pickle.dumps(part))) == samples(part)


def test_positions_are_translated_all_at_once():
    part = share(20, process=1)
    part.shuffle_global_indices()

    assert part.find_global_rows(torch.arange(len(part))).tolist() == samples(part)
    assert list(part.find_global_rows(range(len(part)))) == samples(part)
