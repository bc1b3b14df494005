from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch.utils.data import TensorDataset

import porting.simulator as poptorch
from porting.adapters import to_ipu_dataloader
from porting.adapters.call_batches import CallBatches


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
    options = poptorch.Options()
    options.deviceIterations(3)
    dataset = TensorDataset(torch.arange(num_samples))

    loader = to_ipu_dataloader(
        torch.utils.data.DataLoader(dataset, batch_sampler=Pairs(num_samples)),
        options,
        backend=poptorch,
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
