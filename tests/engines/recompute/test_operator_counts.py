"""Operations are counted by torch's formulas, and bytes are those that operators read and write."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.engines.recompute.operator_counts import count_operators

FLOAT_BYTES = 4


def test_convolutions_are_counted_apart():
    convolution, linear = nn.Conv2d(2, 3, 3), nn.Linear(6, 5)
    image, row = torch.randn(1, 2, 8, 8), torch.randn(4, 6)

    work = count_operators(lambda: (convolution(image), linear(row)))

    assert (work.convolution_flops, work.matmul_flops) == (2 * 2 * 3 * 9 * 36, 2 * 4 * 6 * 5)


@pytest.mark.parametrize(
    ("call", "floats"),
    [
        (lambda one: one + one, 3 * 64),
        (lambda one: one.view(8, 8).t(), 0),
        (lambda one: one.mul_(2.0), 2 * 64),
        (lambda one: torch.zeros(1).expand(64) + one, 1 + 1 + 64 + 64),
    ],
    ids=["reads both and writes", "a view", "in place", "expanded"],
)
def test_bytes_are_those_that_operators_read_and_write(call, floats):
    values = torch.ones(64)

    assert count_operators(lambda: call(values)).operator_bytes == FLOAT_BYTES * floats


def test_a_recurrent_layer_counts_its_products():
    layer = nn.LSTM(4, 6)

    with torch.no_grad():
        work = count_operators(lambda: layer(torch.randn(5, 2, 4)))

    assert work.matmul_flops == 5 * 2 * 2 * (4 + 6) * 4 * 6
