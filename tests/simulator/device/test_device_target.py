"""Which device a model is for: offline targets, the IPU model, and simulated IPUs that count as hardware."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator

MODEL_VARIABLES = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL", "POPTORCH_IPU_MODEL_VERSION")


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch):
    for name in (*MODEL_VARIABLES, "PORTING_SIM_HARDWARE", "PORTING_SIM_IPUS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def offline(poptorch):
    """Give options for a device that is not there."""
    return poptorch.Options().useOfflineIpuTarget()


# -- offline


def test_an_offline_model_compiles_and_is_not_attached(poptorch, offline):
    executor = poptorch.inferenceModel(nn.ReLU(), offline)

    executor.compile(torch.ones(2))

    assert executor.isCompiled()
    assert not executor.isAttachedToDevice()


def test_a_connection_of_never_is_offline_too(poptorch):
    executor = poptorch.inferenceModel(nn.ReLU(), poptorch.Options().connectionType(poptorch.ConnectionType.Never))

    executor.compile(torch.ones(2))

    assert not executor.isAttachedToDevice()


def test_an_offline_model_is_not_run_and_the_arguments_do_not_matter(poptorch, offline):
    executor = poptorch.inferenceModel(nn.ReLU(), offline)

    with pytest.raises(AssertionError) as caught:
        executor("wrong", wrong=1)

    assert str(caught.value) == (
        "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of "
        "model(inputs)"
    )


def test_an_offline_device_cannot_be_attached_or_detached(poptorch, offline):
    executor = poptorch.inferenceModel(nn.ReLU(), offline)
    executor.compile(torch.ones(2))

    with pytest.raises(AssertionError, match=r"Trying to attach to an offline device \(ConnectionType.Never\)"):
        executor.attachToDevice()
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        executor.detachFromDevice()


@pytest.mark.parametrize("method", ["copyWeightsToHost", "copyWeightsToDevice", "copyNamedBuffersToDevice"])
def test_no_weights_move_without_a_device(poptorch, offline, regression, batch, method):
    executor = poptorch.trainingModel(regression, offline)
    executor.compile(*batch)
    before = regression.linear.weight.tolist()

    with pytest.raises(poptorch.Error, match="Device is not attached"):
        getattr(executor, method)()

    assert regression.linear.weight.tolist() == before


def test_an_offline_training_can_be_destroyed_and_its_optimizer_has_no_state(poptorch, offline, regression, batch):
    optimizer = poptorch.optim.Adam(regression.parameters())
    executor = poptorch.trainingModel(regression, offline, optimizer)
    executor.compile(*batch)
    state = optimizer.state_dict()

    executor.destroy()

    assert (state["ipu_state"], state["ipu_param"]) == (None, None)
    assert type(regression).__name__ == "Regression"


def test_an_offline_device_has_no_number(poptorch, offline):
    executor = poptorch.inferenceModel(nn.ReLU(), offline.useIpuId(0))

    with pytest.raises(poptorch.Error, match="Offline compilation targeting a specific id not supported"):
        executor.compile(torch.ones(2))


# -- the IPU model


@pytest.mark.parametrize("variable", ["POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
def test_the_ipu_model_is_never_offline(poptorch, offline, variable, monkeypatch):
    monkeypatch.setenv(variable, "1")
    executor = poptorch.inferenceModel(nn.ReLU(), offline)

    with pytest.raises(poptorch.Error, match="useOfflineIpuTarget not supported for the IPU model"):
        executor.compile(torch.ones(2))


def test_the_option_goes_before_the_environment(poptorch, offline, monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")

    poptorch.inferenceModel(nn.ReLU(), offline.clone().useIpuModel(False)).compile(torch.ones(2))

    monkeypatch.delenv("POPTORCH_IPU_MODEL")
    with pytest.raises(poptorch.Error, match="not supported for the IPU model"):
        poptorch.inferenceModel(nn.ReLU(), offline.useIpuModel(True)).compile(torch.ones(2))


def test_zero_does_not_ask_for_the_model(poptorch, offline, monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "0")

    poptorch.inferenceModel(nn.ReLU(), offline).compile(torch.ones(2))


@pytest.mark.parametrize("version", ["ipu1", "ipu2", "ipu21", ""])
def test_the_model_has_three_versions(poptorch, monkeypatch, version):
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", version)

    assert poptorch.inferenceModel(nn.ReLU())(torch.ones(1)).item() == 1


def test_another_version_is_refused(poptorch, monkeypatch):
    monkeypatch.setenv("POPTORCH_IPU_MODEL", "1")
    monkeypatch.setenv("POPTORCH_IPU_MODEL_VERSION", "ipu3")

    with pytest.raises(poptorch.Error, match="Invalid POPTORCH_IPU_MODEL_VERSION 'ipu3'"):
        poptorch.inferenceModel(nn.ReLU())(torch.ones(1))


# -- simulated hardware


@pytest.mark.parametrize(
    ("value", "version"), [(None, 0), ("", 0), ("0", 0), ("1", 21), ("bow", 21), ("21", 21), ("gc200", 2), ("2", 2)]
)
def test_the_version_of_the_hardware_is_that_of_the_variable(monkeypatch, value, version):
    if value is not None:
        monkeypatch.setenv("PORTING_SIM_HARDWARE", value)

    assert simulator.poptorch_core.ipuHardwareVersion() == version
    assert simulator.ipuHardwareIsAvailable() == (version != 0)


def test_a_generation_of_hardware_that_is_unknown_is_refused(monkeypatch):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "foo")

    with pytest.raises(simulator.Error, match="PORTING_SIM_HARDWARE must be 1 or bow, gc200, or 0 .*, got 'foo'"):
        simulator.ipuHardwareIsAvailable()


def test_the_public_version_is_an_error_without_hardware(monkeypatch):
    with pytest.raises(AssertionError, match="No IPU hardware available on this system"):
        simulator.ipuHardwareVersion()

    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    assert simulator.ipuHardwareVersion() == 21


@pytest.mark.parametrize(("total", "wanted", "is_available"), [("", 64, True), ("", 65, False), ("4", 8, False)])
def test_there_are_so_many_ipus(monkeypatch, total, wanted, is_available):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    monkeypatch.setenv("PORTING_SIM_IPUS", total)

    assert simulator.ipuHardwareIsAvailable(wanted) is is_available


@pytest.mark.parametrize("variable", ["POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"])
def test_a_model_is_no_hardware(monkeypatch, variable):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    monkeypatch.setenv(variable, "1")

    assert simulator.poptorch_core.ipuHardwareVersion() == 0


@pytest.mark.parametrize("text", ["many", "0", "-1"])
def test_the_number_of_ipus_must_be_one(monkeypatch, text):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    monkeypatch.setenv("PORTING_SIM_IPUS", text)

    with pytest.raises(simulator.Error, match="PORTING_SIM_IPUS must be a number of IPUs"):
        simulator.ipuHardwareIsAvailable()
