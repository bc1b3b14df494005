"""Counts of batches that steer a cumulative average are floats on the device, and integers again on the host."""

from __future__ import annotations

import torch
from torch import nn

from porting.adapters.cumulative_counts import counted_on_device, let_device_count, let_host_count


def test_counts_that_steer_nothing_stay_integers():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=None, track_running_stats=False))

    assert let_device_count(model) == []
    assert model[0].num_batches_tracked.dtype == torch.int64


def test_a_count_keeps_its_value_and_its_object():
    norm = nn.BatchNorm1d(2, momentum=None)
    count = norm.num_batches_tracked.add_(5)

    let_device_count(norm)

    assert norm.num_batches_tracked is count
    assert (count.item(), count.dtype) == (5.0, torch.float32)


def test_the_state_has_integers_all_the_time():
    model = nn.Sequential(nn.BatchNorm1d(2, momentum=None))

    let_device_count(model)
    model(torch.randn(3, 2))
    during = model.state_dict()["0.num_batches_tracked"]
    let_host_count(model.modules())

    assert torch.equal(during, torch.tensor(1))
    assert torch.equal(model[0].num_batches_tracked, torch.tensor(1))


def test_what_was_counted_in_between_is_an_integer_afterwards():
    norm = nn.BatchNorm1d(2, momentum=None)

    with counted_on_device(norm):
        norm(torch.randn(3, 2))

    assert torch.equal(norm.num_batches_tracked, torch.tensor(1))


def test_counts_can_be_written_to_after_a_call_in_inference_mode():
    norm = nn.BatchNorm1d(2, momentum=None)

    with torch.inference_mode(), counted_on_device(norm):
        norm.num_batches_tracked.add_(1)
    norm(torch.randn(3, 2))

    assert torch.equal(norm.num_batches_tracked, torch.tensor(2))


def test_a_plain_model_goes_on_from_what_the_device_has_counted():
    counted, plain = nn.BatchNorm1d(2, momentum=None), nn.BatchNorm1d(2, momentum=None)
    let_device_count(counted)
    x = torch.randn(3, 2)
    counted(x)

    plain.load_state_dict(counted.state_dict())
    for norm in (counted, plain):
        norm(2 * x)

    assert torch.equal(plain.running_var, counted.running_var)
    assert torch.equal(plain.num_batches_tracked, torch.tensor(2))
