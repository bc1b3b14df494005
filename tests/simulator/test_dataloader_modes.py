"""Loaders that load ahead and loaders of one of several processes: the batches of the synchronous loader."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import Dataset

from porting.simulator._dataloader import DataLoader
from porting.simulator.enums import DataLoaderMode, SharingStrategy

from .counting_datasets import Counting, batches_of, numbers, options_for, seen
from .leaks import nothing_left_behind

MODES = list(DataLoaderMode)
FORK = {"sharing_strategy": SharingStrategy.Fork}
forks = pytest.mark.filterwarnings(
    "ignore:.*fork:DeprecationWarning", "ignore:This DataLoader will create 7 worker:UserWarning"
)


@pytest.fixture
def load():
    """Give a function that makes loaders of any mode and ends their processes afterwards."""
    made = []

    def make(options, dataset, *args, async_options=None, **settings):
        made.append(DataLoader(options, dataset, *args, async_options={**FORK, **(async_options or {})}, **settings))
        return made[-1]

    yield make
    for loader in made:
        loader.terminate()


@pytest.mark.sampled(4)
@forks
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("persistent", [None, False])
def test_all_modes_load_the_same_batches_and_start_again_after_an_interrupted_epoch(
    load, mode, num_workers, persistent
):
    loader = load(
        options_for(iterations=2, replicas=2),
        numbers(21),
        mode=mode,
        num_workers=num_workers,
        persistent_workers=persistent,
    )
    next(iter(loader))

    assert [seen(loader), seen(loader)] == [[list(range(first, first + 4)) for first in range(0, 20, 4)]] * 2
    assert len(loader) == 5


@forks
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_all_modes_keep_the_rest_on_request(load, mode, num_workers):
    loader = load(options_for(iterations=2), numbers(101), 3, mode=mode, num_workers=num_workers, drop_last=False)

    epochs = [[len(batch) for batch in seen(loader)] for _ in range(2)]

    assert epochs == [[6] * 16 + [5]] * 2
    assert len(loader) == 17


@pytest.mark.slow
@forks
@pytest.mark.parametrize(
    ("mode", "num_batches"),
    [(DataLoaderMode.Sync, 20), (DataLoaderMode.Async, 20), (DataLoaderMode.AsyncRebatched, 25)],
)
def test_rebatching_loses_no_samples_between_the_workers_of_an_iterable_dataset(load, mode, num_batches):
    loader = load(options_for(iterations=2), Counting(101), 2, mode=mode, num_workers=7)

    epochs = [list(map(len, loader)) for _ in range(2)]

    assert epochs == [[4] * num_batches] * 2
    assert len(loader) == 25


@pytest.mark.slow
@forks
@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
@pytest.mark.parametrize("size", [1, 2, 3, 4, None])
@pytest.mark.parametrize("drop_last", [True, False])
def test_the_size_of_the_workers_batches_changes_no_sample(load, mode, size, drop_last):
    loader = load(
        options_for(iterations=2),
        Counting(101),
        2,
        mode=mode,
        num_workers=0,
        rebatched_worker_size=size,
        drop_last=drop_last,
    )

    samples = [int(sample) for batch in loader for sample in batch]

    assert samples == list(range(100 if drop_last else 101))


def test_the_workers_batches_are_not_larger_than_the_combined_ones(load):
    with pytest.raises(
        AssertionError, match=r"The rebatched_worker_size \(5\) must be <= to the combined batch size \(4\)"
    ):
        load(options_for(iterations=2), numbers(8), 2, mode=DataLoaderMode.AsyncRebatched, rebatched_worker_size=5)


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_the_size_of_rebatched_batches_is_not_an_option_of_the_accessor(load, mode):
    with pytest.raises(AssertionError, match="and manually specify the rebatched_size in async_options"):
        load(options_for(), numbers(8), 2, mode=mode, async_options={"rebatched_size": 2})


@forks
def test_options_of_the_accessor_are_handed_on(load):
    loader = load(options_for(), numbers(8), 2, mode=DataLoaderMode.Async, async_options={"buffer_size": 5})

    assert len(loader._accessor._worker._data_buffers.indices_mem) == 5


@forks
@pytest.mark.parametrize("mode", MODES)
def test_dictionaries_stay_dictionaries_in_all_modes(load, mode):
    loader = load(options_for(iterations=2), [{"x": i, "y": -i} for i in range(4)], 1, mode=mode)

    assert [{key: value.tolist() for key, value in batch.items()} for batch in loader] == [
        {"x": [0, 1], "y": [0, -1]},
        {"x": [2, 3], "y": [-2, -3]},
    ]


@forks
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop_last", [True, False])
def test_batches_of_a_sampler_are_combined_in_all_modes(load, mode, drop_last):
    loader = load(options_for(iterations=3), numbers(8), mode=mode, batch_sampler=batches_of(8, 2), drop_last=drop_last)

    assert [seen(loader), seen(loader)] == [[[0, 1, 2, 3, 4, 5]] + ([] if drop_last else [[6, 7]])] * 2


@forks
def test_rebatching_has_nothing_to_drop_without_batches(load):
    loader = load(options_for(), numbers(3), batch_size=None, mode=DataLoaderMode.AsyncRebatched)

    assert [int(sample[0]) for sample in loader] == [0, 1, 2]


@forks
@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_without_batching_samples_are_loaded_ahead_as_they_are(load, mode):
    loader = load(options_for(iterations=2), numbers(3), batch_size=None, drop_last=False, mode=mode)

    assert [int(sample[0]) for sample in loader] == [0, 1, 2]


@forks
def test_the_first_shuffled_epoch_is_that_of_the_synchronous_mode(load):
    orders = []
    for mode in (DataLoaderMode.Sync, DataLoaderMode.Async):
        torch.manual_seed(3)
        orders.append(seen(load(options_for(), numbers(50), 5, shuffle=True, mode=mode)))

    assert orders[0] == orders[1]


@forks
def test_shuffled_epochs_do_not_depend_on_how_far_an_interrupted_one_was_loaded(load):
    orders = []
    for buffer_size in (1, 9):
        torch.manual_seed(3)
        loader = load(
            options_for(),
            numbers(6),
            2,
            shuffle=True,
            mode=DataLoaderMode.Async,
            async_options={"buffer_size": buffer_size, "early_preload": True},
        )
        next(iter(loader))
        orders.append([seen(loader), seen(loader)])

    assert orders[0] == orders[1]


@forks
def test_an_iterator_keeps_a_loader_that_nobody_else_refers_to():
    batches = iter(DataLoader(options_for(), numbers(9), mode=DataLoaderMode.Async, async_options=FORK))

    assert [int(batch[0]) for batch in batches] == list(range(9))


@forks
def test_dropping_a_loader_ends_its_process():
    with nothing_left_behind():
        loader = DataLoader(options_for(), numbers(9), mode=DataLoaderMode.Async, num_workers=2, async_options=FORK)
        assert len(seen(loader)) == 9
        del loader


@forks
def test_a_terminated_loader_leaves_nothing_behind():
    with nothing_left_behind():
        loader = DataLoader(options_for(), numbers(9), mode=DataLoaderMode.Async, num_workers=2, async_options=FORK)
        next(iter(loader))
        loader.terminate()
        loader.terminate()
        del loader


@forks
@pytest.mark.usefixtures("two_cores")
def test_many_workers_are_capped_inside_the_loading_process_too(load, caplog):
    loader = load(options_for(), numbers(40), 4, mode=DataLoaderMode.Async, num_workers=64)

    assert loader.num_workers == 2
    assert seen(loader) == [list(range(first, first + 4)) for first in range(0, 40, 4)]
    assert "num_workers=64 is more than the 2 cores of this machine" in caplog.text


@forks
def test_a_dataset_that_raises_in_a_worker_of_the_loading_process_is_an_error(load, capfd):
    class Broken(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            assert index < 4, "Broken dataset"
            return torch.tensor(index)

    loader = load(options_for(), Broken(), 2, mode=DataLoaderMode.Async, num_workers=1)

    with pytest.raises(AssertionError, match="An error occurred in the data fetcher"):
        list(loader)
    assert "AssertionError: Broken dataset" in capfd.readouterr().err


def test_a_loader_that_could_not_be_made_is_destroyed_quietly():
    DataLoader.__new__(DataLoader).terminate()


def test_a_copy_of_a_loader_has_processes_of_its_own():
    loader = DataLoader(options_for(iterations=2), numbers(4), 2)

    assert seen(pickle.loads(pickle.dumps(loader))) == [[0, 1, 2, 3]]


# several processes


def partitioned(process, processes, count, *, load=DataLoader, shuffle=False, seed=5, **settings):
    options = options_for(iterations=2)
    if seed is not None:
        options.randomSeed(seed)
    options.Distributed.configureProcessId(process, processes)
    return load(options, numbers(count), 2, shuffle=shuffle, **settings)


def test_processes_divide_the_dataset_into_contiguous_parts():
    loaders = [partitioned(process, 3, 30) for process in range(3)]

    assert [seen(loader) for loader in loaders] == [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[8, 9, 10, 11], [12, 13, 14, 15]],
        [[16, 17, 18, 19], [20, 21, 22, 23]],
    ]
    assert [len(loader) for loader in loaders] == [2, 2, 2]


def test_processes_divide_all_samples_when_the_rest_is_kept():
    loaders = [partitioned(process, 3, 31, drop_last=False) for process in range(3)]

    assert sum((sum(seen(loader), []) for loader in loaders), []) == list(range(31))


@forks
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_processes_shuffle_over_all_of_the_dataset_without_overlap(load, mode, num_workers):
    loaders = [
        partitioned(process, 2, 43, load=load, shuffle=True, mode=mode, num_workers=num_workers) for process in range(2)
    ]

    epochs = [[sum(seen(loader), []) for loader in loaders] for _ in range(3)]

    for first, second in epochs:
        assert len(first) == len(second) == 20
        assert not set(first) & set(second)
    assert len({tuple(first) for first, _second in epochs}) == 3


@forks
@pytest.mark.parametrize("buffer_size", [1, 8])
def test_the_global_order_does_not_depend_on_what_was_loaded_ahead(load, buffer_size):
    settings = {"shuffle": True, "drop_last": True}
    sync = partitioned(0, 2, 19, **settings)
    ahead = partitioned(
        0, 2, 19, load=load, mode=DataLoaderMode.Async, async_options={"buffer_size": buffer_size}, **settings
    )

    for loader in (sync, ahead):
        next(iter(loader))

    assert [seen(ahead), seen(ahead)] == [seen(sync), seen(sync)]


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
