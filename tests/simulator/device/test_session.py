"""A device is attached and released, weights move when they are asked for, and calls refuse what they cannot run."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting.simulator._device.session import DeviceSession


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
    monkeypatch.setattr(DeviceSession, "send_weights", lambda _session: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        executor(*batch)
    monkeypatch.undo()

    assert not executor.isAttachedToDevice()
    assert executor(*batch)[1].isfinite()


def test_weights_that_are_up_to_date_are_not_fetched(poptorch, regression, batch):
    executor = poptorch.trainingModel(regression)
    executor(*batch)

    assert [executor.copyWeightsToHostIfNeeded() for _ in range(2)] == [True, False]


@pytest.mark.parametrize("move", ["copyWeightsToHost", "copyWeightsToDevice", "copyNamedBuffersToDevice"])
def test_nothing_moves_without_the_device(poptorch, move):
    executor = poptorch.inferenceModel(nn.Linear(1, 1))

    with pytest.raises(poptorch.Error, match="Model has not been compiled or has been destroyed"):
        getattr(executor, move)()

    executor.compile(torch.ones(1, 1))
    executor.detachFromDevice()

    with pytest.raises(poptorch.Error, match="Device is not attached"):
        getattr(executor, move)()


def test_named_buffers_must_be_listed(poptorch):
    executor = poptorch.inferenceModel(nn.BatchNorm1d(1).eval())
    executor.compile(torch.ones(2, 1))

    with pytest.raises(poptorch.Error, match="No named buffers marked as updatable"):
        executor.copyNamedBuffersToDevice()


def test_inputs_must_be_on_the_cpu(poptorch):
    executor = poptorch.inferenceModel(nn.ReLU())
    executor.compile(torch.ones(2))

    with pytest.raises(poptorch.Error, match="Inputs must be on the CPU, got a tensor on meta"):
        executor(torch.ones(2, device="meta"))


def test_layouts_are_converted_and_that_is_said_once(poptorch, caplog):
    executor = poptorch.inferenceModel(nn.ReLU())

    results = [executor(torch.arange(6.0).reshape(2, 3).t()) for _ in range(2)]

    assert results[0].tolist() == [[0, 3], [1, 4], [2, 5]]
    assert caplog.text.count("At least one input tensor is not contiguous") == 1


def test_inputs_that_require_a_gradient_get_none(poptorch):
    x = torch.ones(2, requires_grad=True)

    result = poptorch.inferenceModel(nn.Tanh())(x)

    assert not result.requires_grad
    assert x.grad is None


def test_a_run_that_fails_leaves_no_gradients_behind(poptorch):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(3, 2)

        def forward(self, index):
            return nn.functional.l1_loss(self.table(index), torch.zeros(1, 2, device=index.device))

    options = poptorch.Options()
    options.Training.gradientAccumulation(2)
    executor = poptorch.trainingModel(Looks(), options)
    executor.compile(torch.zeros(2, dtype=torch.long))

    with pytest.raises(IndexError):
        executor(torch.tensor([0, 9]))

    assert all(parameter.grad is None for parameter in executor.device_session.compiled.state.parameters.values())
