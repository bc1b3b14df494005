"""Operators that the device lacks are computed by others on the hardware path too, and train like plain PyTorch."""

from __future__ import annotations

import pytest

from tests.hardware.side_by_side import equal, port, sgd
from tests.remedies.operator_cases import FUNCTIONS, MODULES, make_input, make_model

# torch says so of even kernels
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


# torch 2.0 itself has no derivative of the first two, and does not tell modes of writes
NOT_THERE = ("aminmax", "channel_shuffle", "write with steps")


@pytest.mark.parametrize("name", [name for name in (*FUNCTIONS, *MODULES) if name not in NOT_THERE])
def test_an_operator_computed_by_others_trains_like_plain(name):
    x, plain = make_input(), make_model(name)
    optimizer = sgd(plain)
    expected = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = plain(x)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())

    model = make_model(name)
    ported = port(model, optimizer=sgd(model))
    losses = [float(ported(x)) for _step in range(3)]

    assert losses == equal(expected)
    assert "C025" in {finding.code for finding in ported.report().findings}
