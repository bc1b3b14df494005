"""The cost of a step knows its products, its library kernels and its update."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.contract.trial import Trial
from porting.engines.tuning.step_costs import measure_peak_flops, measure_step_cost
from porting.host_tensors import host_tensors


@pytest.fixture
def cost_of(settings):
    """Give a function that measures the cost of training a model by its mean squared output."""

    def cost_of(model, inputs, *, iterations=1):
        labels = torch.zeros(model(inputs).shape)
        graph = capture_step(model, [inputs, labels], loss=F.mse_loss, mode="training")
        names = (tuple(info.name for info in graph.parameters),)
        request = BuildRequest(CallPlan(iterations=iterations), (settings("ADAM"),), names)
        weights = {host.name: host.tensor.detach() for host in host_tensors(model)}
        batch = [torch.cat([tensor] * iterations) for tensor in (inputs, labels)]
        return measure_step_cost(graph, request, Trial(weights, batch, request.plan, request.groups, names))

    return cost_of


def test_large_products_are_told_apart_with_their_operations(cost_of):
    found = cost_of(nn.Sequential(nn.Linear(256, 256), nn.Tanh()), torch.ones(64, 256))

    assert found.products > 0
    assert found.update > 0
    assert found.rest > 0
    assert found.library == 0
    # forward, and twice as much backward
    assert found.product_flops == 3 * 2 * 64 * 256 * 256
    assert found.peak_flops > 1e8


def test_small_products_are_as_long_as_the_way_to_them(cost_of):
    found = cost_of(nn.Linear(4, 2), torch.ones(8, 4))

    assert found.products == 0
    assert found.peak_flops == 0


def test_convolutions_are_told_apart_with_their_operations(cost_of):
    found = cost_of(nn.Conv2d(3, 8, 3), torch.ones(4, 3, 32, 32))

    assert found.convolutions > 0
    assert found.library == 0
    assert list(found.convolution_flops.values()) == [2 * 4 * 8 * 30 * 30 * 3 * 3 * 3]


class Last(nn.Module):
    """The last output of an LSTM."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 16, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0][:, -1]


def test_lstms_are_told_apart(cost_of):
    found = cost_of(Last(), torch.ones(4, 8, 16))

    assert found.cells > 0
    assert found.library == 0


def test_a_call_of_several_iterations_is_counted_as_a_whole(cost_of):
    one, ten = (cost_of(nn.Linear(256, 256), torch.ones(64, 256), iterations=number) for number in (1, 10))

    assert ten.num_iterations == 10
    assert ten.product_flops == 10 * one.product_flops


def test_the_weights_of_the_trial_stay_as_they_are(cost_of):
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()

    cost_of(model, torch.ones(8, 4))

    assert torch.equal(model.weight, before)


def test_the_peak_is_that_of_a_product():
    assert measure_peak_flops() > 1e8
