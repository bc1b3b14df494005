"""Values of a model that 32 bits cannot hold are found; all others pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting.analysis.wide_state import iter_wide_state, refuse_wide_state
from porting.diagnostics import PortingError
from porting.host_tensors import host_tensors


def model_with(value):
    model = nn.Linear(2, 2)
    model.register_buffer("value", value)
    return model


@pytest.mark.parametrize(
    "value",
    [torch.tensor(2**31), torch.tensor([0, -(2**31) - 1]), torch.tensor(1e300, dtype=torch.float64)],
    ids=str,
)
def test_a_value_beyond_32_bits_is_found(value):
    (finding,) = iter_wide_state(host_tensors(model_with(value)))

    assert finding.code == "C043"
    assert "the buffer `value` has the value" in finding.message


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(2**31 - 1),
        torch.tensor([float("inf"), float("nan")], dtype=torch.float64),
        torch.tensor(2.0**100),
        torch.empty(0, dtype=torch.int64),
        torch.empty(3, dtype=torch.int64, device="meta"),
    ],
    ids=str,
)
def test_other_values_pass(value):
    assert not list(iter_wide_state(host_tensors(model_with(value))))


def test_all_wide_values_are_in_one_error():
    model = model_with(torch.tensor(2**40))
    model.register_buffer("other", torch.tensor(2**41))

    with pytest.raises(PortingError, match=r"(?s)`value`.*`other`"):
        refuse_wide_state(host_tensors(model))


class Reading(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model_with(torch.tensor(2**40))

    def forward(self, x):
        return self.inner(x) * self.inner.value


def test_a_port_refuses_those_that_its_step_reads():
    ported = porting.to_ipu(Reading(), nn.MSELoss(), device="sim")

    with pytest.raises(PortingError, match="C043"):
        ported(torch.rand(3, 2), torch.rand(3, 2))


def test_a_port_leaves_the_others_on_the_host():
    ported = porting.to_ipu(model_with(torch.tensor(2**40)), nn.MSELoss(), device="sim")

    ported(torch.rand(3, 2), torch.rand(3, 2))

    assert ported.state_dict()["value"].item() == 2**40
