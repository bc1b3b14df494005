"""What an optimizer of the device keeps for each weight."""

from __future__ import annotations

import pytest
import torch

from porting.planning.optimizer_bytes import count_accumulator_bytes, count_state_bytes
from porting.simulator import optim


def sgd(**settings):
    return optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=0.1, momentum=0.9, **settings)


@pytest.mark.parametrize(
    ("optimizer", "accumulated", "state"),
    [
        (None, 4, 0),
        (sgd(), 4, 4),
        (sgd(accum_type=torch.float16, velocity_accum_type=torch.float16), 2, 2),
        # the gradient is added up in the velocity
        (sgd(use_combined_accum=True), 0, 4),
    ],
)
def test_a_weight_has_an_accumulated_gradient_and_state(optimizer, accumulated, state):
    assert (count_accumulator_bytes(optimizer), count_state_bytes(optimizer)) == (accumulated, state)
