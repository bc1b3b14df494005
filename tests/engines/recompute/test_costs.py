"""Costs of computation orders are predicted on tensors without values, and are what is measured."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from porting.capture import capture_step
from porting.engines.recompute.costs import format_costs, predict_cost, predict_costs

WIDTH, ROWS, LAYERS = 16, 32, 8


@pytest.fixture(scope="module")
def graph():
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Sigmoid())]
    batch = [torch.ones(ROWS, WIDTH), torch.ones(ROWS, WIDTH)]
    return capture_step(nn.Sequential(*layers), batch, loss=functional.mse_loss, mode="training")


@pytest.fixture(scope="module")
def costs(graph):
    orders = ["none", "dummy2", "chen", "gttime", "gtmem"]
    return dict(zip(orders, predict_costs(graph, orders)))


def test_forward_operations_are_counted_by_the_formula_of_a_product(costs):
    assert costs["none"].forward_flops == LAYERS * 2 * ROWS * WIDTH * WIDTH


def test_nothing_is_computed_again_where_everything_is_kept(costs):
    assert (costs["none"].num_segments, costs["none"].recomputed_flops) == (0, 0)


def test_what_is_kept_is_what_autograd_keeps(costs):
    # the result of each sigmoid; that of the last one is the output as well
    assert costs["none"].kept_bytes == LAYERS * ROWS * WIDTH * 4


@pytest.mark.parametrize("order", ["dummy2", "chen", "gtmem"])
def test_an_order_keeps_less_and_computes_more(costs, order):
    assert costs[order].kept_bytes < costs["none"].kept_bytes
    assert 0 < costs[order].recomputed_flops <= costs["none"].forward_flops


@pytest.mark.parametrize("order", ["chen", "gttime", "gtmem"])
def test_the_peak_of_an_order_is_lower(costs, order):
    assert costs[order].peak_bytes < costs["none"].peak_bytes


def test_the_policy_that_saves_time_computes_no_more_than_the_one_that_saves_memory(costs):
    assert costs["gttime"].recomputed_flops <= costs["gtmem"].recomputed_flops


def test_a_larger_budget_computes_less_again(graph):
    small, large = predict_costs(graph, ["gttime", "gttime:1"])

    assert large.recomputed_flops <= small.recomputed_flops
    assert large.recomputed_flops == 0


def test_a_step_without_a_backward_pass_keeps_nothing():
    inference = capture_step(nn.Linear(4, 2), [torch.ones(2, 4)], mode="inference")

    assert predict_cost(inference, "none", plain=inference).kept_bytes == 0


def test_the_table_has_a_line_for_each_order(costs):
    assert len(format_costs(list(costs.values())).splitlines()) == 1 + len(costs)
