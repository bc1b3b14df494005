"""A program cannot become faster than its kernels, and a step that is nothing else gains nothing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.aot.predictions import predict_seconds
from porting.engines.calls.executable import Choice
from porting.engines.contract.step_cost import StepCost

AOT = Choice("aot")


def predict(products=0.0, library=0.0, update=0.0, rest=0.0, **facts):
    return predict_seconds(AOT, StepCost(products, library, update, rest, num_iterations=0, **facts))


def cost_of(layer, *inputs, **kinds):
    """Return the cost of a step of one layer, whose convolutions have an operation each."""
    graph = capture_step(layer, list(inputs), mode="inference").graph
    flops = {node: 1 for node in graph.nodes if "conv" in str(node.target)}
    return StepCost(0.0, 0.0, 0.0, 0.0, graph=graph, convolution_flops=flops, **kinds)


def test_a_step_of_library_kernels_alone_gains_nothing():
    assert predict(library=1.0).low == 1.0


def test_convolutions_may_gain_by_other_kernels():
    found = predict(convolutions=1.0)

    assert 4 / 9 < found.low < found.median < 1.0


def test_what_is_fused_gains_most():
    assert predict(rest=1.0).low < predict(update=1.0).low < predict(library=1.0).low


def test_a_product_at_the_peak_of_the_machine_gains_nothing():
    assert predict(products=1.0, product_flops=100, peak_flops=100.0).low == 1.0


def test_a_slow_product_may_gain_by_another_library():
    slow = predict(products=1.0, product_flops=50, peak_flops=100.0)

    assert slow.low == pytest.approx(0.5)
    assert slow.low < slow.median < 1.0


@pytest.mark.parametrize("kinds", [(1.0, 2.0, 3.0, 4.0), (0.0, 1.0, 0.0, 0.1), (5.0, 0.0, 0.1, 0.0)])
def test_without_cells_the_least_is_never_more_than_the_usual_and_that_never_more_than_all(kinds):
    found = predict(*kinds, product_flops=10, peak_flops=1000.0)

    assert found.low <= found.median <= sum(kinds) < found.high


@pytest.mark.parametrize(("seconds", "is_worth_it"), [(0.001, True), (10.0, False)])
def test_several_steps_of_a_run_matter_for_tiny_steps_only(seconds, is_worth_it):
    cost = StepCost(0.0, 0.0, 0.0, seconds, num_iterations=100)

    single, several = (predict_seconds(Choice("aot", steps_per_run=number), cost).median for number in (1, 10))

    assert (single / several > 1.05) is is_worth_it


def test_an_lstm_that_is_written_out_takes_longer_than_torchs_kernel():
    found = predict(cells=1.0)

    assert 1.0 < found.low < found.median < found.high


@pytest.mark.parametrize(("num_steps", "is_written_out"), [(8, False), (40, True), (100, False)])
def test_an_lstm_of_few_or_of_many_cells_stays_torchs_kernel(num_steps, is_written_out):
    cost = cost_of(nn.LSTM(4, 4, batch_first=True), torch.ones(2, num_steps, 4), cells=1.0)

    assert (predict_seconds(AOT, cost).low > 1.0) is is_written_out


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(32, 64, 3, padding=1), nn.Conv2d(32, 20, 1), nn.Conv2d(32, 32, 5, groups=32)]
)
def test_convolutions_with_a_choice_of_kernels_may_gain(layer):
    assert predict_seconds(AOT, cost_of(layer, torch.ones(4, 32, 16, 16), convolutions=1.0)).low < 1.0


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(3, 8, 3), (4, 3, 32, 32)),
        (nn.Conv1d(32, 32, 1), (4, 32, 9)),
        (nn.Conv2d(32, 32, 3, padding="same"), (4, 32, 9, 9)),
    ],
)
def test_convolutions_without_another_kernel_gain_nothing(layer, shape):
    assert predict_seconds(AOT, cost_of(layer, torch.ones(shape), convolutions=1.0)).low == 1.0
