"""The first value that is not finite is found in plain PyTorch, in the passes and in the optimizer's update."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.nan_search import NotFiniteError
from tests.hardware.side_by_side import one_batch, port

HARMFUL = {
    "SGD": {"lr": 3e38},
    "Adam": {"eps": 0.0},
    "AdamW": {"eps": 0.0},
    "RMSprop": {"eps": 0.0},
}
HARMLESS = {"SGD": {"lr": 1e-3}, "Adam": {}, "AdamW": {}, "RMSprop": {}}


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def make_port(kind, optimizer_settings, *, factor=1.0, loss=None, **settings):
    model = nn.Sequential(nn.Linear(4, 4), Scaled(factor), nn.Linear(4, 3))
    made = getattr(torch.optim, kind)(model.parameters(), **{"lr": 0.01, **optimizer_settings})
    return port(model, loss or nn.CrossEntropyLoss(), optimizer=made, **settings)


def find_nan(ported):
    before = {name: value.clone() for name, value in ported.state_dict().items()}
    fault = ported.find_nan(one_batch())
    assert all(torch.equal(before[name], value) for name, value in ported.state_dict().items())
    return fault


@pytest.mark.parametrize("settings", [{"micro_batch": 8}, {"micro_batch": 4, "accumulation": 2}], ids=str)
@pytest.mark.parametrize("kind", HARMFUL)
def test_the_update_that_is_not_finite_is_named(kind, settings):
    fault = find_nan(make_port(kind, HARMFUL[kind], factor=1e3 if kind == "SGD" else 0.0, **settings))

    assert (fault.phase, fault.module_path) == ("update", "0")
    assert fault.operator.name.startswith(kind.upper())
    assert all(value.is_finite for value in fault.inputs)
    assert not fault.result.is_finite
    assert "the optimizer's state of the device" in fault.ran_on


@pytest.mark.parametrize(("kind", "settings"), [("SGD", {"lr": 1e-6, "momentum": 0.9}), ("RMSprop", {})])
def test_the_update_goes_on_from_the_state_of_the_device(kind, settings):
    ported = make_port(kind, settings, factor=1e3)
    ported(*one_batch())

    state = ported.port_optimizer.read_device_state()
    ported.port_optimizer.given.param_groups[0].update(lr=3e38)
    fault = find_nan(ported)

    assert fault.phase == "update"
    (kept,) = [value for value in fault.inputs if value.name == f"Accl1 of {fault.name}"]
    assert kept.highest == pytest.approx(float(state[f"Accl1___{fault.name}"].max()))


@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_the_updates_before_the_call_are_counted(kind):
    ported = make_port(kind, {"eps": 1e-7}, factor=0.0)
    ported(*one_batch())

    ported.port_optimizer.given.param_groups[0].update(eps=0.0)
    fault = find_nan(ported)

    assert (fault.phase, fault.name) == ("update", "0.weight")
    assert [value.highest for value in fault.inputs if value.name == "Step of 0.weight"] == [1.0]


@pytest.mark.parametrize("kind", HARMLESS)
def test_a_call_that_is_finite_has_no_fault(kind):
    ported = make_port(kind, HARMLESS[kind], micro_batch=4, device_iterations=2)

    assert find_nan(ported) is None
    ported(*one_batch())
    assert find_nan(ported) is None


def test_the_step_of_several_is_counted():
    fault = find_nan(make_port("SGD", {"lr": 1e25}, micro_batch=4, device_iterations=2))

    assert (fault.phase, fault.step) == ("forward", 2)


def test_debug_nan_names_the_batch_that_is_bad():
    ported = make_port("SGD", {}, debug_nan=True)
    x, y = one_batch()

    with pytest.raises(NotFiniteError) as caught:
        ported(x * float("inf"), y)

    assert (caught.value.fault.phase, caught.value.fault.name) == ("before", "input_0")
