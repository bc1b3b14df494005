from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

import porting.simulator as poptorch
from porting import FixedBatchDataset, PortOptions, partition, to_ipu
from porting.adapters import PortingWarning
from porting.diagnostics import BatchError


@pytest.fixture
def samples(batches):
    """20 batches of 6 as one dataset of 120 samples."""
    return TensorDataset(*(torch.cat(parts) for parts in zip(*batches)))


@pytest.fixture
def port(make_model):
    def port_with(model=None, loss=None, **options):
        model = make_model() if model is None else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = nn.CrossEntropyLoss() if loss is None else loss
        return to_ipu(model, loss, optimizer=optimizer, options=PortOptions(**options))

    return port_with


def test_an_existing_loader_becomes_the_backends_with_the_same_batches(port, samples):
    source = DataLoader(samples, batch_size=6)

    loader = port().dataloader(source)

    assert isinstance(loader, poptorch.DataLoader)
    assert all(torch.equal(ours[0], theirs[0]) for ours, theirs in zip(loader, source))
    assert (loader.report.calls_per_epoch, loader.report.samples_lost_per_epoch) == (20, 0)


def test_training_from_a_shuffled_loader_has_the_losses_of_plain_pytorch(
    port, make_model, samples, train_plainly, train_ported, same
):
    source = DataLoader(samples, batch_size=6, shuffle=True)
    plain = make_model()
    torch.manual_seed(3)
    expected = train_plainly(plain, torch.optim.SGD(plain.parameters(), lr=0.1), source)

    ported = port()
    loader = ported.dataloader(source)
    ported.compile(*samples[:6])
    torch.manual_seed(3)

    same(train_ported(ported, loader), expected)


def test_a_dataset_is_cut_into_combined_batches_of_the_options(port, samples):
    ported = port(micro_batch=2, accumulation=3, device_iterations=5)

    loader = ported.dataloader(samples)
    x, y = next(iter(loader))

    assert x.shape == (30, 4)
    assert loader.report.samples_per_call == 30
    assert ported(x, y)[1].shape == ()


def test_the_micro_batch_of_the_options_wins_over_the_loaders(port, samples):
    ported = port(micro_batch=2, accumulation=3)

    loader = ported.dataloader(DataLoader(samples, batch_size=64))

    assert next(iter(loader))[0].shape == (6, 4)


def test_loaders_for_inference_take_no_accumulation(port, samples):
    ported = port(micro_batch=2, accumulation=3)

    loader = ported.dataloader(samples, training=False)

    assert next(iter(loader))[0].shape == (2, 4)


def test_samples_that_fill_no_call_are_counted_in_a_warning(port, samples):
    with pytest.warns(PortingWarning) as caught:
        loader = port().dataloader(samples, batch_size=50)

    assert caught[0].message.finding.code == "B006"
    assert "20 of 120 samples (16.7 %) are dropped in every epoch" in str(caught[0].message)
    assert loader.report.percent_lost == pytest.approx(100 * 20 / 120)


def test_samples_that_are_dropped_on_purpose_are_only_reported(port, samples):
    loader = port().dataloader(samples, batch_size=50, drop_last=True)

    assert loader.report.samples_lost_per_epoch == 20


def test_keeping_the_last_short_batch_is_refused(port, samples):
    with pytest.raises(BatchError, match="B004"):
        port().dataloader(samples, batch_size=50, drop_last=False)


def test_a_padded_dataset_trains_like_the_real_samples_alone(port, samples, same):
    class Plain(nn.Sequential):
        pass

    def make():
        torch.manual_seed(0)
        return Plain(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    short = TensorDataset(*samples[:15])
    plain = make()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    expected = []
    for x, y in DataLoader(short, batch_size=6):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(plain(x), y)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    ported = port(model=make())
    loader = ported.dataloader(FixedBatchDataset(short, 6), batch_size=6)

    same([ported(*batch)[1].item() for batch in loader], expected)
    same(ported.state_dict(), plain.state_dict())
    assert loader.report.padding_per_epoch == 3


def test_padding_that_the_loss_does_not_ignore_is_an_error(port, samples):
    ported = port(loss=nn.CrossEntropyLoss(ignore_index=-1))

    with pytest.raises(BatchError, match="B007"):
        ported.dataloader(FixedBatchDataset(samples, 50), batch_size=50)


def test_padding_is_looked_at_within_the_share_of_an_instance(port, samples):
    ported = port(loss=nn.CrossEntropyLoss(ignore_index=-1))

    with pytest.raises(BatchError, match="B007"):
        ported.dataloader(partition(FixedBatchDataset(samples, 50), 0, 2), batch_size=25)


def test_padding_in_front_of_batchnorm_is_reported(port, samples):
    with pytest.warns(PortingWarning, match="B008"):
        port().dataloader(FixedBatchDataset(samples, 50), batch_size=50)


def test_a_dataset_smaller_than_one_call_is_refused_with_ways_out(port, samples):
    ported = port(micro_batch=8, accumulation=32)

    with pytest.raises(BatchError) as caught:
        ported.dataloader(samples)

    assert caught.value.code == "B005"
    assert "the dataset has 120 samples, but one call takes 256" in str(caught.value)
    assert any("lower `accumulation` from 32 to 15" in line for line in caught.value.finding.help)


def test_further_arguments_are_those_of_the_backends_loader(port, samples):
    loader = port().dataloader(samples, batch_size=6, collate_fn=lambda items: torch.stack([x for x, _ in items]))

    assert next(iter(loader)).shape == (6, 4)


def test_workers_load_the_same_batches(port, samples):
    ported = port()

    plain, by_workers = (
        ported.dataloader(samples, batch_size=30),
        ported.dataloader(samples, batch_size=30, num_workers=1),
    )

    assert all(torch.equal(one[0], other[0]) for one, other in zip(plain, by_workers))


def test_a_subset_of_a_padded_dataset_is_checked_and_counted_as_it_is():
    data = FixedBatchDataset(TensorDataset(torch.ones(10, 4), torch.zeros(10, dtype=torch.int64)), 4, ignore_label=-1)
    ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(), device="sim")

    with pytest.raises(BatchError, match="B007"):
        ported.dataloader(Subset(data, range(4, 12)), batch_size=4)

    ported = to_ipu(nn.Linear(4, 3), nn.CrossEntropyLoss(ignore_index=-1), device="sim")
    assert ported.dataloader(Subset(data, range(4, 12)), batch_size=4).report.padding_per_epoch == 2
