"""Samples: other values, another order, dropped and repeated samples are differences of the batches themselves."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from porting import PortOptions
from porting.verify.calls import Calls
from porting.verify.inputs import compare_samples
from porting.verify.ported_run import PortedTraining

X, Y = torch.arange(8.0).view(4, 2), torch.arange(4)


def compare(theirs, *, ours=(X, Y), source=None, batches=None, **options):
    ported = PortedTraining(SimpleNamespace(options=PortOptions(**options)), batches=batches)
    return list(compare_samples(source, ported, Calls([(ours, {})]), Calls([(theirs, {})])))


def test_the_same_samples_are_no_difference():
    (found,) = compare((X.clone(), Y.clone()))

    assert found.is_inside


@pytest.mark.parametrize(
    ("theirs", "note"),
    [
        ((X, Y.roll(1)), "tensor 1 of the batch has other values"),
        ((X.flip(0), Y.flip(0)), "tensor 0 of the batch has other values"),
        ((X[:3], Y[:3]), "[[3, 2], [3]] in the port, not [[4, 2], [4]]"),
        ((X,), "[[4, 2]] in the port, not [[4, 2], [4]]"),
    ],
)
def test_other_samples_are_told(theirs, note):
    (found,) = compare(theirs)

    assert not found.is_inside
    assert found.note == note


def test_batches_that_both_share_are_not_compared():
    calls = Calls([((X, Y), {})])

    assert list(compare_samples(None, PortedTraining(SimpleNamespace(options=PortOptions())), calls, calls)) == []


def test_samples_that_the_ports_epoch_drops_are_counted():
    data = TensorDataset(torch.arange(10.0))
    plain = DataLoader(data, batch_size=2)

    found = compare((X, Y), source=plain, batches=DataLoader(data, batch_size=4, drop_last=True), micro_batch=4)

    (dropped,) = (one for one in found if one.name == "dropped")
    assert not dropped.is_inside
    assert "an epoch of the port has 2 samples dropped, one of plain PyTorch 0" in dropped.note
