"""Which parameters of the host's optimizer are the model's, and how an optimizer is taken and given up."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._optimizer.device_optimizer import DeviceOptimizer, name_parameters


def test_parameters_have_the_names_of_the_model_by_identity_and_by_memory():
    model = nn.Linear(2, 1)

    names = name_parameters(model)

    assert [names[id(parameter)] for parameter in (model.weight, model.bias)] == ["weight", "bias"]
    assert names[model.weight.data_ptr()] == "weight"


def test_an_optimizer_gets_its_own_state_dict_back_when_another_takes_its_place(regression):
    device_optimizer = DeviceOptimizer(simulator.Options())
    first, second = (simulator.optim.SGD(regression.parameters(), lr=lr) for lr in (0.1, 0.2))

    device_optimizer.take(first)
    device_optimizer.take(second)

    assert device_optimizer.host is second
    assert "state_dict" not in vars(first)
    assert "state_dict" in vars(second)


def test_a_refused_optimizer_leaves_the_one_before_it(regression):
    device_optimizer = DeviceOptimizer(simulator.Options())
    first = simulator.optim.SGD(regression.parameters(), lr=0.1)
    device_optimizer.take(first)

    with pytest.raises((ValueError, AssertionError)):
        device_optimizer.take(torch.optim.Adagrad(regression.parameters(), lr=0.1))

    assert device_optimizer.host is first


def test_destroying_gives_the_optimizer_its_own_state_dict_back(regression, batch):
    adam = simulator.optim.Adam(regression.parameters(), lr=0.1)
    executor = simulator.trainingModel(regression, optimizer=adam)
    executor(*batch)

    executor.destroy()

    assert "state_dict" not in vars(adam)
    assert adam.state_dict()["ipu_state"]["Step___linear.bias"].item() == 1


def _constant_momentum(model):
    optimizer = simulator.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.variable_attrs.markAsConstant("momentum")
    return optimizer


def _change_momentum(optimizer):
    optimizer.param_groups[0]["momentum"] = 0.8


def _change_loss_scaling(optimizer):
    optimizer.loss_scaling = 2.0


@pytest.mark.parametrize("change", [_change_momentum, _change_loss_scaling])
def test_a_constant_cannot_change_once_compiled(regression, batch, change):
    optimizer = _constant_momentum(regression)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    change(optimizer)

    with pytest.raises(simulator.Error, match="is a constant of the executable"):
        executor.setOptimizer(optimizer)


def test_a_setting_cannot_become_variable_once_compiled(regression, batch):
    optimizer = torch.optim.SGD(regression.parameters(), lr=0.1)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    _change_momentum(optimizer)

    with pytest.raises(simulator.Error, match="`momentum` of group 0 is a constant of the executable"):
        executor.setOptimizer(optimizer)


def test_a_constant_that_changed_while_detached_is_refused_by_the_device(regression, batch):
    optimizer = _constant_momentum(regression)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    executor.detachFromDevice()
    _change_momentum(optimizer)
    executor.setOptimizer(optimizer)

    with pytest.raises(simulator.Error, match="is a constant of the executable"):
        executor.attachToDevice()


def test_training_goes_on_with_the_settings_before_a_refused_change(regression, batch):
    optimizer = _constant_momentum(regression)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    _change_momentum(optimizer)
    with pytest.raises(simulator.Error):
        executor.setOptimizer(optimizer)

    executor(*batch)
    optimizer.param_groups[0]["momentum"] = 0.9
    executor.setOptimizer(optimizer)

    assert executor.device_session.optimizer.groups[0].momentum == 0.9


def test_a_constant_may_change_for_the_next_compilation(regression, batch):
    optimizer = _constant_momentum(regression)
    executor = simulator.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    executor.destroy()
    _change_momentum(optimizer)

    executor.setOptimizer(optimizer)
    executor(*batch)

    assert executor.device_session.optimizer.groups[0].momentum == 0.8
