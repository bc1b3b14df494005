"""An optimizer's state goes to the device and comes back as torch's."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.loss import LossInForward
from porting.adapters.optimizer_state import carry_state, name_parameters, to_torch_state
from porting.adapters.optimizers import to_backend_optimizer
from porting.diagnostics import UnsupportedOptimizerError

OPTIMIZERS = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "Adam": (torch.optim.Adam, {"lr": 0.01}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
}
X, Y = torch.linspace(-1, 1, 20).reshape(5, 4), torch.arange(5) % 3


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def step(model, optimizer):
    optimizer.zero_grad()
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def steps_on_device(model, optimizer, poptorch, count=3):
    """Train on the device and return the state that its optimizer has afterwards."""
    wrapped = LossInForward(model, F.cross_entropy, backend=poptorch)
    converted = to_backend_optimizer(optimizer, wrapped, backend=poptorch)
    executor = poptorch.trainingModel(wrapped, optimizer=converted)
    for _ in range(count):
        executor(X, Y)
    executor.destroy()
    return converted.state_dict()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_state_that_comes_back_is_torchs_own(name, poptorch):
    kind, arguments = OPTIMIZERS[name]
    plain, model = make_model(), make_model()
    reference = kind(plain.parameters(), **arguments)
    optimizer = kind(model.parameters(), **arguments)
    for _ in range(3):
        step(plain, reference)

    state = to_torch_state(steps_on_device(model, optimizer, poptorch), optimizer, model)

    expected = reference.state_dict()["state"]
    assert state["param_groups"] == optimizer.state_dict()["param_groups"]
    assert {index: set(values) for index, values in state["state"].items()} == {
        index: set(values) for index, values in expected.items()
    }
    for index, values in expected.items():
        for key in set(values) - ({"step"} if name == "RMSprop" else set()):
            torch.testing.assert_close(state["state"][index][key], values[key], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_torch_goes_on_where_the_device_stopped(name, poptorch):
    kind, arguments = OPTIMIZERS[name]
    plain, model = make_model(), make_model()
    reference = kind(plain.parameters(), **arguments)
    optimizer = kind(model.parameters(), **arguments)
    for _ in range(4):
        step(plain, reference)

    optimizer.load_state_dict(to_torch_state(steps_on_device(model, optimizer, poptorch), optimizer, model))
    step(model, optimizer)

    torch.testing.assert_close(dict(model.state_dict()), dict(plain.state_dict()), rtol=1e-4, atol=1e-6)


def test_a_device_that_never_ran_has_no_state(poptorch):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())

    state = to_torch_state(poptorch.optim.Adam(model.parameters()).state_dict(), optimizer, model)

    assert state == optimizer.state_dict()


def test_parameters_that_are_not_trained_have_no_state(poptorch):
    model = make_model()
    model[0].requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())

    state = to_torch_state(steps_on_device(model, optimizer, poptorch), optimizer, model)

    assert set(state["state"]) == {2, 3}


def test_the_result_shares_no_memory_with_the_device(poptorch):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters())
    device_state = steps_on_device(model, optimizer, poptorch)
    before = copy.deepcopy(device_state["ipu_state"])

    to_torch_state(device_state, optimizer, model)["state"][0]["exp_avg"].zero_()

    torch.testing.assert_close(device_state["ipu_state"], before)


def test_an_optimizer_without_state_carries_none(poptorch):
    model = make_model()
    target = poptorch.optim.Adam(model.parameters())

    carry_state(torch.optim.Adam(model.parameters()), target, model)

    assert not target.has_state()


def test_a_state_of_another_shape_is_refused(poptorch):
    model = make_model()
    source = torch.optim.Adam(model.parameters())
    step(model, source)
    source.state[model[0].weight]["exp_avg"] = torch.ones(2)

    with pytest.raises(UnsupportedOptimizerError, match=r"`exp_avg` for `0.weight` has shape \[2\], not \[6, 4\]"):
        carry_state(source, poptorch.optim.Adam(model.parameters()), model)


def test_parameters_have_the_models_names():
    model = make_model()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)

    names = name_parameters(optimizer, model)

    assert names == {id(model[2].weight): "2.weight", id(model[2].bias): "2.bias"}


def test_a_tied_parameter_has_its_first_name():
    model = make_model()
    model.add_module("again", model[0])

    names = name_parameters(torch.optim.SGD(model.parameters(), lr=0.1), model)

    assert names[id(model[0].weight)] == "0.weight"
