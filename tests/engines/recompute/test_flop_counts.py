"""Operations are counted by torch's formulas, of attention on the processor too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import porting.simulator as poptorch
from porting.capture import capture_step
from porting.engines.recompute.flop_counts import count_flops, count_node_flops


class Function(nn.Module):
    """A function of one tensor as a model."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def flops_of(function, x):
    graph = capture_step(Function(function), [x], mode="inference")
    return sum(count_node_flops(node) for node in graph.graph.nodes if node.op == "call_function")


def test_a_product_makes_two_operations_for_each_of_its_terms():
    assert flops_of(lambda x: x @ x, torch.ones(4, 4)) == 2 * 4 * 4 * 4


def test_an_operator_without_a_formula_makes_one_for_each_element():
    assert flops_of(torch.exp, torch.ones(3, 5)) == 15


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.one_hot(x.argmax(-1), 8),
        lambda x: F.cosine_similarity(x, x.roll(1, -1)),
        lambda x: F.interpolate(x[None, None], scale_factor=2.0, mode="bilinear"),
        lambda x: x + torch.arange(8).to(x.device),
    ],
)
def test_an_operator_that_makes_tensors_of_its_own_is_counted(function):
    assert flops_of(function, torch.ones(4, 8)) > 0


def test_a_loop_makes_those_of_its_body_each_time():
    def repeat(x):
        return poptorch.for_loop(7, lambda value: torch.exp(value), [x])[0]

    assert flops_of(repeat, torch.ones(3, 5)) >= 7 * 15


def test_attention_on_the_processor_is_counted():
    query = torch.ones(1, 2, 8, 4)

    with count_flops() as counter:
        F.scaled_dot_product_attention(query, query, query)

    # two products of [8, 4] and [4, 8] for each of two heads
    assert counter.get_total_flops() == 2 * 2 * (2 * 8 * 4 * 8)
