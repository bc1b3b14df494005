"""Loaders on the hardware path are PopTorch's own: order, samples lost, workers, samplers, padding."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

import porting
from tests.hardware.side_by_side import port, sgd, small_net


def dataset(num_samples=48):
    drawn = torch.Generator().manual_seed(2)
    return TensorDataset(
        torch.randn(num_samples, 4, generator=drawn), torch.randint(3, (num_samples,), generator=drawn)
    )


def ported_with(**settings):
    model = small_net()
    return port(model, nn.CrossEntropyLoss(), optimizer=sgd(model), **settings)


def shuffled(batch_size):
    return DataLoader(dataset(), batch_size, shuffle=True, generator=torch.Generator().manual_seed(5))


def test_a_torch_loader_keeps_its_order():
    ported = ported_with(accumulation=2)
    made = ported.dataloader(shuffled(4))

    found, expected = list(made), list(shuffled(8))

    assert len(made) == len(found) == 6
    assert all(torch.equal(x, ex) and torch.equal(y, ey) for (x, y), (ex, ey) in zip(found, expected))
    assert made.report.samples_per_call == 8


def test_what_a_loader_gives_trains():
    ported = ported_with(accumulation=2)

    losses = [ported(x, y)[1].item() for _epoch in range(3) for x, y in ported.dataloader(shuffled(4))]

    assert sum(losses[-6:]) < sum(losses[:6])


def test_samples_that_are_lost_are_said():
    with pytest.warns(UserWarning, match="B006"):
        made = ported_with(micro_batch=8).dataloader(dataset(50), shuffle=True)

    assert len(list(made)) == 6


@pytest.mark.parametrize(
    ("source", "num_calls"),
    [([(torch.zeros(4), torch.tensor(1))] * 16, 2), (Subset(dataset(), range(16)), 2)],
    ids=["list", "Subset"],
)
def test_a_dataset_of_another_kind_is_taken(source, num_calls):
    assert len(list(ported_with(micro_batch=8).dataloader(source))) == num_calls


def test_a_loader_for_inference_has_micro_batches():
    made = ported_with(micro_batch=4, accumulation=2).dataloader(dataset(), training=False)

    assert next(iter(made))[0].shape == (4, 4)


def test_workers_bring_every_sample():
    made = ported_with(micro_batch=4, accumulation=2).dataloader(
        dataset(50), drop_last=True, num_workers=2, shuffle=True, seed=3
    )

    assert sum(len(x) for x, _y in made) == 48


def prepare(_worker):
    """Stand for what a program does in each worker."""


def collate(samples):
    return torch.stack([x for x, _y in samples]), torch.stack([y for _x, y in samples])


def test_a_torch_loader_keeps_its_settings_of_workers():
    loader = DataLoader(
        dataset(),
        batch_size=4,
        num_workers=1,
        worker_init_fn=prepare,
        collate_fn=collate,
        persistent_workers=True,
        prefetch_factor=4,
    )

    assert len(list(ported_with(micro_batch=4, accumulation=2).dataloader(loader))) == 6


def test_a_sampler_is_taken():
    loader = DataLoader(dataset(), batch_size=4, sampler=WeightedRandomSampler([1.0] * 48, 48))

    assert len(list(ported_with(micro_batch=4, accumulation=2).dataloader(loader))) == 6


class Batches:
    """A batch sampler."""

    batch_size = 4

    def __iter__(self):
        return iter([list(range(first, first + 4)) for first in range(0, 48, 4)])

    def __len__(self):
        return 12


def test_a_batch_sampler_is_taken_and_the_length_is_the_number_of_calls():
    loader = DataLoader(dataset(), batch_sampler=Batches())
    made = ported_with(micro_batch=4, accumulation=2).dataloader(loader)

    found = list(made)

    assert [x.shape for x, _y in found] == [(8, 4)] * 6
    assert len(made) == 6


class Stream(IterableDataset):
    def __iter__(self):
        return iter([(torch.zeros(4), torch.tensor(1))] * 20)


def test_a_stream_is_taken():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(list(ported_with(micro_batch=4).dataloader(Stream()))) == 5


def test_padded_batches_train_by_fit_and_evaluate():
    model = small_net()
    loss = nn.CrossEntropyLoss(ignore_index=-100)
    ported = port(model, loss, optimizer=sgd(model), micro_batch=8)
    data = porting.FixedBatchDataset(dataset(50), batch_size=8)

    history = porting.fit(ported, ported.dataloader(data, shuffle=True), epochs=2, progress=False)
    ported.eval()
    accuracies = [porting.masked_accuracy(ported(x, y)[0], y) for x, y in ported.dataloader(data, training=False)]

    assert history[1] < history[0]
    assert len(accuracies) == 7


def test_parts_of_a_dataset_and_sums_need_no_other_instance():
    share = porting.partition(dataset(), 0, 2, shuffle=True)

    assert len(list(ported_with(micro_batch=8).dataloader(share))) == 3
    assert porting.sum_over_instances([1, 2]).tolist() == [1.0, 2.0]
