"""The seconds that a program waits for its data."""

from __future__ import annotations

import time

import torch
from torch.utils.data import Dataset

from porting.simulator._dataloader import DataLoader
from porting.simulator._loading.waiting import TimedBatches, WaitingTime

from ..counting_datasets import batches_of, numbers, options_for


class Slow(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.tensor(index)


def test_a_loader_counts_what_its_batches_take():
    loader = DataLoader(options_for(), Slow(), 2)
    before = loader.waiting_seconds

    for _batch in loader:
        pass
    once = loader.waiting_seconds
    for _batch in loader:
        pass

    assert before == 0
    assert 0.04 <= once < loader.waiting_seconds


def test_the_time_between_batches_does_not_count():
    loader = DataLoader(options_for(), numbers(4), 2)

    for _batch in loader:
        time.sleep(0.1)

    assert loader.waiting_seconds < 0.2


def test_combined_batches_of_a_sampler_count_too():
    loader = DataLoader(options_for(iterations=2), Slow(), batch_sampler=batches_of(4, 1))

    for _batch in loader:
        pass

    assert loader.waiting_seconds >= 0.04


def test_an_iterator_stays_what_it_was():
    def elements():
        yield from range(2)

    iterator = TimedBatches(elements(), WaitingTime())

    assert iter(iterator) is iterator
    assert list(iterator) == [0, 1]
    assert iterator.gi_frame is None
