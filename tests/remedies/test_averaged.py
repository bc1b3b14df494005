"""BatchNorm with `momentum=None` has eager PyTorch's results and statistics, on the host and on the device."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import Fallback, PortOptions, to_ipu
from porting.adapters.cumulative_counts import let_device_count
from porting.remedies.averaged import normalise_with_cumulative_average

LAYERS = {
    "1d": (nn.BatchNorm1d, (6, 4)),
    "1d of sequences": (nn.BatchNorm1d, (6, 4, 3)),
    "2d": (nn.BatchNorm2d, (3, 4, 2, 5)),
    "3d": (nn.BatchNorm3d, (2, 4, 2, 3, 2)),
}


def make_values(number, shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(number)) * 3 + number


@pytest.mark.parametrize(("kind", "shape"), LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize("affine", [True, False])
def test_results_and_statistics_over_batches_are_those_of_torch(kind, shape, affine):
    ours = kind(4, momentum=None, affine=affine)
    theirs = copy.deepcopy(ours)
    let_device_count(ours)

    for number in range(5):
        x = make_values(number, shape)
        assert torch.equal(normalise_with_cumulative_average(ours, x), theirs(x))

    assert ours.num_batches_tracked.item() == theirs.num_batches_tracked.item() == 5
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None).eval(), nn.BatchNorm1d(4, None, track_running_stats=False)],
    ids=["a momentum", "eval mode", "no statistics"],
)
def test_other_layers_are_left_to_torch(layer):
    assert normalise_with_cumulative_average(layer, torch.randn(3, 4)) is Fallback


@pytest.mark.parametrize("grouping", [{}, {"accumulation": 2}, {"device_iterations": 2}], ids=str)
def test_a_port_has_the_statistics_of_eager_training(grouping):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))
    model = copy.deepcopy(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(micro_batch=6, engine="replay", **grouping)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")
    size = options.samples_per_call

    for number in range(4):
        x = make_values(number, (size, 4))
        ported(x, torch.arange(size) % 3)
        for rows in x.split(6):
            F.cross_entropy(plain(rows), torch.arange(len(rows)) % 3)

    state = ported.state_dict()
    torch.testing.assert_close(state["0.running_mean"], plain[0].running_mean)
    torch.testing.assert_close(state["0.running_var"], plain[0].running_var)
    assert torch.equal(state["0.num_batches_tracked"], plain[0].num_batches_tracked)
    assert torch.equal(model.state_dict()["0.num_batches_tracked"], plain[0].num_batches_tracked)
    ported.destroy()
    assert torch.equal(model[0].num_batches_tracked, plain[0].num_batches_tracked)


def test_a_port_goes_on_from_a_count_that_was_loaded():
    plain = nn.Sequential(nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))
    ported = to_ipu(copy.deepcopy(plain), nn.CrossEntropyLoss(), device="sim")
    x, y = make_values(1, (6, 4)), torch.arange(6) % 3
    ported(x, y)
    plain(2 * x)
    plain(3 * x)

    ported.load_state_dict(plain.state_dict())
    ported(x, y)
    plain(x)

    torch.testing.assert_close(ported.state_dict()["0.running_mean"], plain[0].running_mean)
    assert ported.state_dict()["0.num_batches_tracked"].item() == 3


def test_a_momentum_that_is_taken_away_counts_after_another_compilation():
    plain = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    ported = to_ipu(copy.deepcopy(plain), nn.CrossEntropyLoss(), device="sim")
    x, y = make_values(1, (6, 4)), torch.arange(6) % 3
    ported(x, y)
    plain(x)

    for norm in (ported.model[0], plain[0]):
        norm.reset_running_stats()
        norm.momentum = None
    ported.destroy()
    ported(x, y)
    plain(x)

    torch.testing.assert_close(ported.state_dict()["0.running_mean"], plain[0].running_mean)
