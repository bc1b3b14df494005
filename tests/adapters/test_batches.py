"""A torch DataLoader or a dataset becomes the device's loader, with batches for a whole call."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.data import TensorDataset

from porting.adapters.batches import CallBatches, to_ipu_dataloader
from porting.simulator._dataloader import DataLoader
from tests.adapters.device_loaders import BACKEND, convert, device, numbers


def test_the_result_is_the_backends_loader_with_batches_for_a_whole_call():
    loader = convert(numbers(48), device(iterations=2, accumulation=3, replicas=2), batch_size=2)

    assert type(loader) is DataLoader
    assert [len(batch[0]) for batch in loader] == [24, 24]


def test_further_arguments_go_to_the_backends_loader():
    assert convert(numbers(4), batch_size=2, worker_init_fn=print).worker_init_fn is print


class Pairs:
    batch_size = 2

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __iter__(self):
        return iter([[first, first + 1] for first in range(0, self.num_samples, 2)])

    def __len__(self):
        return self.num_samples // 2


@pytest.mark.parametrize("num_samples", [12, 14, 16])
def test_the_length_of_a_loader_is_the_number_of_its_calls(num_samples):
    options = device(iterations=3)
    dataset = TensorDataset(torch.arange(num_samples))

    loader = to_ipu_dataloader(
        torch.utils.data.DataLoader(dataset, batch_sampler=Pairs(num_samples)),
        options,
        backend=BACKEND,
        drop_last=True,
    )

    assert len(loader) == len(list(loader)) == num_samples // 6


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_are_the_same(copied):
    batches = copied(CallBatches(Pairs(8), num_joined=2))

    assert (len(batches), list(batches)[0], batches.batch_size) == (2, [0, 1], 2)


def test_what_it_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError):
        CallBatches([[0]], num_joined=1).sampler  # noqa: B018
