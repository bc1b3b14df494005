"""What optimizers keep for each weight."""

from __future__ import annotations

import pytest
import torch

import porting.simulator as poptorch
from porting.planning.optimizer_bytes import count_bytes_per_weight, count_state_bytes, find_width

WEIGHTS = [torch.nn.Parameter(torch.ones(3))]


@pytest.mark.parametrize(
    ("make", "state"),
    [
        (lambda: poptorch.optim.SGD(WEIGHTS, lr=0.1), 0),
        (lambda: poptorch.optim.SGD(WEIGHTS, lr=0.1, momentum=0.9, use_combined_accum=False), 4),
        (lambda: poptorch.optim.AdamW(WEIGHTS, lr=0.1), 8),
        (lambda: poptorch.optim.LAMB(WEIGHTS, lr=0.1), 8),
        (lambda: poptorch.optim.RMSprop(WEIGHTS, lr=0.1, centered=True), 8),
    ],
    ids=["SGD", "momentum", "AdamW", "LAMB", "RMSprop"],
)
def test_each_optimizer_keeps_its_moments_in_single_precision(make, state):
    optimizer = make()

    assert count_state_bytes(optimizer) == state
    assert count_bytes_per_weight(optimizer) == state + 4


def test_without_an_optimizer_nothing_is_kept_but_the_gradient():
    assert (count_state_bytes(None), count_bytes_per_weight(None)) == (0, 4)


def test_half_precision_takes_two_bytes():
    optimizer = poptorch.optim.AdamW(
        WEIGHTS, lr=0.1, accum_type=torch.float16, first_order_momentum_accum_type=torch.float16
    )

    assert find_width(optimizer, "accum_type") == 2
    assert count_bytes_per_weight(optimizer) == 2 + 2 + 4
