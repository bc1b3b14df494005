"""Operators whose results a device would stop at raise."""

from __future__ import annotations

import pytest
import torch

from porting.engines.replay.replay import FloatingPointChecks

INFINITY, NAN = torch.tensor([float("inf")]), torch.tensor([float("nan")])


@pytest.mark.parametrize(
    ("compute", "kind"),
    [
        (lambda: torch.ones(1) / 0, "overflow or division by zero.*aten::div"),
        (lambda: torch.log(torch.zeros(1)), "overflow or division by zero"),
        (lambda: torch.exp(torch.tensor([1000.0])), "overflow or division by zero"),
        (lambda: torch.tensor([1e6]).half(), "overflow or division by zero"),
        (lambda: torch.zeros(1) / 0, "invalid operation.*NaN"),
        (lambda: INFINITY * 0, "invalid operation"),
        (lambda: INFINITY - INFINITY, "invalid operation"),
        (lambda: torch.sqrt(-torch.ones(1)), "invalid operation"),
        (lambda: NAN < 1, "invalid operation: aten::lt compares with NaN"),
        (lambda: torch.ones(1) != NAN, "invalid operation: aten::ne"),
    ],
)
def test_exceptional_results_raise(compute, kind):
    with pytest.raises(FloatingPointError, match=kind), FloatingPointChecks():
        compute()


@pytest.mark.parametrize(
    "compute",
    [
        lambda: torch.ones(2) * 3,
        lambda: torch.full((2,), float("inf")),
        lambda: torch.ones(2).masked_fill(torch.tensor([True, False]), float("-inf")),
        lambda: NAN + 1,
        lambda: INFINITY + 1,
        lambda: torch.exp(-INFINITY),
        lambda: torch.tensor([1, 2]) // 2,
        lambda: torch.isnan(NAN),
        lambda: torch.zeros(0) / 0,
    ],
)
def test_ordinary_results_pass(compute):
    with FloatingPointChecks():
        assert isinstance(compute(), torch.Tensor)


def test_the_backward_pass_is_checked(device):
    x = torch.zeros(1, requires_grad=True)

    with pytest.raises(FloatingPointError), FloatingPointChecks():
        torch.sqrt(x).backward()


def test_a_plan_that_checks_raises_and_changes_no_weight(device, settings):
    model = torch.nn.Linear(1, 1)
    on_device = device(model, torch.ones(1, 1), torch.ones(1, 1), loss=torch.nn.functional.mse_loss)
    before = on_device.weights()

    with pytest.raises(FloatingPointError):
        on_device.run(torch.full((1, 1), 1e38), torch.full((1, 1), -1e38), settings=settings(), checks_floats=True)

    assert all(torch.equal(value, before[name]) for name, value in on_device.weights().items())
