"""Which parameters of the host's optimizer are the model's, and how an optimizer is taken and given up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._optimizer.device_optimizer import DeviceOptimizer, parameter_names


def test_parameters_have_the_names_of_the_model_by_identity_and_by_memory():
    model = nn.Linear(2, 1)

    names = parameter_names(model)

    assert [names[id(parameter)] for parameter in (model.weight, model.bias)] == ["weight", "bias"]
    assert names[model.weight.data_ptr()] == "weight"


def test_an_optimizer_gets_its_own_state_dict_back_when_another_takes_its_place(regression):
    device_optimizer = DeviceOptimizer(simulator.Options())
    first, second = (simulator.optim.SGD(regression.parameters(), lr=lr) for lr in (0.1, 0.2))

    device_optimizer.take(first)
    device_optimizer.take(second)

    assert device_optimizer.uses(second)
    assert "state_dict" not in vars(first)
    assert "state_dict" in vars(second)


def test_a_refused_optimizer_leaves_the_one_before_it(regression):
    device_optimizer = DeviceOptimizer(simulator.Options())
    first = simulator.optim.SGD(regression.parameters(), lr=0.1)
    device_optimizer.take(first)

    with pytest.raises((ValueError, AssertionError)):
        device_optimizer.take(torch.optim.Adagrad(regression.parameters(), lr=0.1))

    assert device_optimizer.uses(first)


def test_destroying_gives_the_optimizer_its_own_state_dict_back(regression, batch):
    adam = simulator.optim.Adam(regression.parameters(), lr=0.1)
    executor = simulator.trainingModel(regression, optimizer=adam)
    executor(*batch)

    executor.destroy()

    assert "state_dict" not in vars(adam)
    assert adam.state_dict()["ipu_state"]["Step___linear.bias"].item() == 1
