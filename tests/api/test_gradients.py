"""A port that keeps gradients brings those to the host that the optimizer's step used."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting import PortingError, PortOptions


def port(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(keep_gradients=True, **options)
    return porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")


def expected(model, x, y):
    model.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def assert_close(found, wanted):
    assert set(found) == set(wanted)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient)


@pytest.mark.parametrize("options", [{}, {"micro_batch": 2, "accumulation": 3, "output_mode": "all"}], ids=str)
def test_gradients_are_those_of_plain_pytorch(options):
    model, (x, y) = nn.Linear(4, 2), (torch.randn(6, 4), torch.randn(6, 2))
    wanted = expected(model, x, y)
    ported = port(model, **options)

    ported(x, y)

    assert_close(ported.gradients(), wanted)


def test_each_step_of_a_call_has_its_own():
    model, (x, y) = nn.Linear(4, 2), (torch.randn(4, 4), torch.randn(4, 2))
    first = expected(model, x[:2], y[:2])
    ported = port(model, micro_batch=2, device_iterations=2, output_mode="all")

    ported(x, y)

    assert_close(ported.gradients(0), first)
    assert not torch.equal(ported.gradients(1)["weight"], ported.gradients(0)["weight"])
    assert torch.equal(ported.gradients()["bias"], ported.gradients(1)["bias"])


@pytest.mark.parametrize("wrong", [2, -3, 0.0, True])
def test_a_step_that_a_call_does_not_make_has_none(wrong):
    ported = port(nn.Linear(4, 2), micro_batch=2, device_iterations=2, output_mode="all")
    ported(torch.randn(4, 4), torch.randn(4, 2))

    with pytest.raises(PortingError, match="a call makes 2 optimizer steps") as caught:
        ported.gradients(wrong)
    assert caught.value.code == "P002"
    assert torch.equal(ported.gradients(-2)["bias"], ported.gradients(0)["bias"])


def test_loss_scaling_is_taken_out():
    model, (x, y) = nn.Linear(4, 2), (torch.randn(6, 4), torch.randn(6, 2))
    wanted = expected(model, x, y)
    simulator = pytest.importorskip("porting.simulator")
    optimizer = simulator.optim.SGD(model.parameters(), lr=0.1, loss_scaling=8.0)
    options = PortOptions(keep_gradients=True)
    ported = porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")

    ported(x, y)

    assert_close(ported.gradients(), wanted)


def test_only_what_is_trained_has_gradients():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    model[0].requires_grad_(False)
    ported = port(model)

    ported(torch.randn(2, 4), torch.randn(2, 2))

    assert set(ported.gradients()) == {"1.weight", "1.bias"}


def test_keeping_gradients_changes_no_weight_and_no_state():
    data = torch.randn(2, 4), torch.randn(2, 2)
    results = []
    for options in (PortOptions(), PortOptions(keep_gradients=True)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        ported = porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")
        for _ in range(3):
            ported(*data)
        results.append((list(model.state_dict().values()), ported.optimizer_state_dict()["state"]))

    torch.testing.assert_close(results[0], results[1])


def test_without_the_option_there_are_none():
    ported = porting.to_ipu(nn.Linear(4, 2), nn.MSELoss(), device="sim")
    ported(torch.randn(2, 4), torch.randn(2, 2))

    with pytest.raises(PortingError) as caught:
        ported.gradients()
    assert caught.value.code == "D009"


def test_before_the_first_call_there_are_none():
    with pytest.raises(PortingError, match="before the first training call"):
        port(nn.Linear(4, 2)).gradients()


@pytest.mark.parametrize("wrong", [{"keep_gradients": 1}, {"keep_gradients": True, "accumulation": 2}], ids=str)
def test_gradients_of_several_micro_batches_need_all_outputs(wrong):
    with pytest.raises(PortingError) as caught:
        PortOptions(**wrong)
    assert caught.value.code == "P002"
