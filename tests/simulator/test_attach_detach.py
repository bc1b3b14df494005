"""Giving the device free and taking it again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


@pytest.fixture
def executor(poptorch, regression, batch):
    """Give a training executor, with momentum, that has run once."""
    optimizer = poptorch.optim.SGD(regression.parameters(), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(regression, optimizer=optimizer)
    executor(*batch)
    return executor


def test_an_executor_is_attached_once_it_is_compiled(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)

    before = executor.isAttachedToDevice()
    executor.compile(*batch)

    assert (before, executor.isAttachedToDevice()) == (False, True)


def test_an_executor_on_demand_is_attached_once_it_is_compiled(poptorch, regression, batch):
    options = poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
    executor = poptorch.trainingModel(regression, options)

    executor.compile(*batch)

    assert executor.isAttachedToDevice()


def test_a_detached_executor_is_not_attached(executor):
    executor.detachFromDevice()

    assert not executor.isAttachedToDevice()
    assert executor.isCompiled()


def test_detaching_twice_is_refused(poptorch, executor):
    executor.detachFromDevice()

    with pytest.raises(poptorch.Error, match="Device is not attached"):
        executor.detachFromDevice()


def test_attaching_twice_is_refused(poptorch, executor):
    with pytest.raises(poptorch.Error, match="Device is already attached"):
        executor.attachToDevice()


@pytest.mark.parametrize("method", ["attachToDevice", "detachFromDevice"])
def test_nothing_is_attached_before_compiling(poptorch, regression, method):
    executor = poptorch.trainingModel(regression)

    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed."):
        getattr(executor, method)()


def test_detaching_fetches_the_weights(executor, regression):
    before = executor._host_weights_version

    executor.detachFromDevice()

    assert executor._host_weights_version == before + 1
    assert not executor.copyWeightsToHostIfNeeded()


def test_a_call_attaches_again(executor, batch):
    executor.detachFromDevice()

    executor(*batch)

    assert executor.isAttachedToDevice()


@pytest.mark.parametrize("again", ["attachToDevice", "compile"])
def test_weights_set_while_detached_are_used(executor, batch, again):
    executor.detachFromDevice()
    with torch.no_grad():
        executor.model.linear.weight.zero_()
        executor.model.linear.bias.zero_()

    executor.attachToDevice()

    assert not executor(*batch)[0].any()


def test_training_goes_on_as_if_it_had_never_been_detached(poptorch, regression, batch):
    twin = copy.deepcopy(regression)
    executors = [
        poptorch.trainingModel(m, optimizer=poptorch.optim.Adam(m.parameters(), lr=0.1)) for m in (regression, twin)
    ]
    executors[0](*batch)
    executors[1](*batch)

    executors[0].detachFromDevice()
    executors[0].attachToDevice()

    assert torch.equal(executors[0](*batch)[1], executors[1](*batch)[1])
    assert torch.equal(executors[0](*batch)[1], executors[1](*batch)[1])


def test_settings_made_while_detached_hold_afterwards(executor, batch):
    executor.detachFromDevice()
    executor._optimizer.param_groups[0].update(lr=0.0, momentum=0.0)

    executor.setOptimizer(executor._optimizer)
    executor.attachToDevice()

    assert torch.equal(executor(*batch)[1], executor(*batch)[1])


def test_the_optimizers_state_is_on_the_host_while_detached(executor):
    executor.detachFromDevice()

    assert executor._optimizer.state_dict()["ipu_state"]["Accl1___linear.weight"].any()


def test_a_state_loaded_while_detached_is_used(executor, batch):
    executor.detachFromDevice()
    state = copy.deepcopy(executor._optimizer.state_dict())
    state["ipu_state"]["Accl1___linear.weight"].zero_()
    executor._optimizer.load_state_dict(state)

    executor.attachToDevice()

    assert not executor._optimizer.state_dict()["ipu_state"]["Accl1___linear.weight"].any()


def test_a_state_loaded_into_a_detached_executors_model_is_used(executor, batch):
    zeros = {name: torch.zeros_like(value) for name, value in executor.model.state_dict().items()}
    executor.detachFromDevice()

    executor.load_state_dict(zeros)

    assert not executor(*batch)[0].any()


def test_a_detached_executor_can_be_destroyed(executor, regression):
    executor.detachFromDevice()

    executor.destroy()

    assert type(regression.linear.weight) is nn.Parameter


def test_inference_can_be_detached(poptorch, batch, regression):
    executor = poptorch.inferenceModel(regression)
    expected = executor(*batch)[1]

    executor.detachFromDevice()

    assert torch.equal(executor(*batch)[1], expected)


def test_an_offline_device_cannot_be_attached(poptorch, regression):
    options = poptorch.Options().connectionType(poptorch.ConnectionType.Never)
    executor = poptorch.inferenceModel(regression, options)

    with pytest.raises(poptorch.Error):
        executor.attachToDevice()


@pytest.mark.parametrize("method", ["copyWeightsToHost", "copyWeightsToDevice"])
def test_no_weights_are_copied_while_detached(poptorch, executor, regression, method):
    executor.detachFromDevice()
    with torch.no_grad():
        regression.linear.weight.fill_(2.0)

    with pytest.raises(poptorch.Error, match="Device is not attached"):
        getattr(executor, method)()

    assert regression.linear.weight.tolist() == [[2.0] * 3] * 2


def test_a_failed_attachment_can_be_tried_again(poptorch, executor, batch, monkeypatch):
    executor.detachFromDevice()
    monkeypatch.setattr("porting.simulator._execution.attachment.send_weights", lambda _executor: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        executor(*batch)
    monkeypatch.undo()

    assert not executor.isAttachedToDevice()
    assert executor(*batch)[1].isfinite()
