"""Simulated IPUs that count as hardware are a limited supply that executors take and give back."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator._device import device_target
from porting.simulator._device.device_target import Claim, claim_device, count_reserved_ipus, list_devices


@pytest.fixture(autouse=True)
def two_ipus(monkeypatch):
    """Let two simulated IPUs count as hardware, and no executor of another test hold one."""
    gc.collect()
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "1")
    monkeypatch.setenv("PORTING_SIM_IPUS", "2")
    for name in ("POPTORCH_WAIT_FOR_IPU", "POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL"):
        monkeypatch.delenv(name, raising=False)


def compiled(options=None):
    executor = simulator.inferenceModel(nn.ReLU(), options)
    executor.compile(torch.ones(4))
    return executor


def replicated(replicas):
    return simulator.Options().replicationFactor(replicas)


# -- executors


def test_a_model_beyond_the_supply_is_refused_and_not_compiled():
    holders = [compiled(), compiled()]
    late = simulator.inferenceModel(nn.ReLU())

    with pytest.raises(simulator.Error, match=r"Failed to acquire 1 IPU\(s\): .* has 2 .*, 2 of them attached"):
        late(torch.ones(1))

    assert len(holders) == 2
    assert not late.isCompiled()


def test_a_model_on_demand_is_compiled_before_it_is_refused():
    holders = [compiled(), compiled()]
    late = simulator.inferenceModel(nn.ReLU(), simulator.Options().connectionType(simulator.ConnectionType.OnDemand))

    with pytest.raises(simulator.Error, match="Failed to acquire"):
        late.compile(torch.ones(1))

    assert len(holders) == 2
    assert (late.isCompiled(), late.isAttachedToDevice()) == (True, False)


@pytest.mark.parametrize("give_back", ["detachFromDevice", "destroy"])
def test_a_device_that_is_given_back_can_be_taken(give_back):
    holder = compiled(replicated(2))

    getattr(holder, give_back)()

    assert compiled(replicated(2)).isAttachedToDevice()


def test_attaching_again_needs_a_free_device():
    first = compiled(replicated(2))
    first.detachFromDevice()
    second = compiled(replicated(2))

    with pytest.raises(simulator.Error, match=r"Failed to acquire 2 IPU\(s\)"):
        first(torch.ones(4))
    second.destroy()

    assert first(torch.ones(4)).tolist() == [1, 1, 1, 1]


def test_a_forgotten_executor_gives_its_device_back():
    compiled(replicated(2))

    assert compiled(replicated(2)).isAttachedToDevice()


def test_a_forgotten_cycle_gives_its_device_back():
    executor = compiled(replicated(2))
    executor.model.executor = executor
    del executor

    assert compiled(replicated(2)).isAttachedToDevice()


def test_a_failed_compilation_takes_no_device():
    class Broken(nn.Module):
        def forward(self, x):
            raise RuntimeError("broken")

    executor = simulator.inferenceModel(Broken(), replicated(2))
    with pytest.raises(RuntimeError, match="broken"):
        executor(torch.ones(2))

    assert compiled(replicated(2)).isAttachedToDevice()


def test_two_training_executors_share_the_machine(regression, batch):
    first = simulator.trainingModel(regression, replicated(2))
    first(*batch)
    first.detachFromDevice()
    inference = simulator.inferenceModel(first.model.linear, replicated(2))
    inference(batch[0])
    inference.detachFromDevice()

    assert first(*batch)[1].isfinite().all()


@pytest.mark.parametrize("options", [simulator.Options().useIpuModel(True), simulator.Options().useOfflineIpuTarget()])
def test_models_without_hardware_take_nothing(options):
    holder = compiled(replicated(2))

    assert compiled(options).isCompiled()
    assert holder.isAttachedToDevice()


def test_without_hardware_there_is_no_shortage(monkeypatch):
    monkeypatch.setenv("PORTING_SIM_HARDWARE", "0")

    executors = [compiled() for _ in range(5)]

    assert all(executor.isAttachedToDevice() for executor in executors)


# -- waiting


def test_an_executor_waits_if_it_may(monkeypatch):
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")
    holder = compiled(replicated(2))
    detaching, said = threading.Thread(target=holder.detachFromDevice), []

    def give_back_when_it_waits(level, message):
        said.append((level, message))
        detaching.start()

    monkeypatch.setattr(device_target, "cpp_log", give_back_when_it_waits)

    late = compiled(replicated(2))
    detaching.join()

    assert late.isAttachedToDevice()
    assert said == [("warning", "No IPU available, sleeping until one is free (POPTORCH_WAIT_FOR_IPU is set)")]


def test_nobody_waits_for_more_than_there_is(monkeypatch):
    monkeypatch.setenv("POPTORCH_WAIT_FOR_IPU", "1")

    with pytest.raises(simulator.Error, match=r"Failed to acquire 4 IPU\(s\)"):
        compiled(replicated(4))


# -- choosing


def test_a_device_can_be_chosen_by_its_number():
    one = compiled(simulator.Options().useIpuId(1))

    assert one.isAttachedToDevice()
    with pytest.raises(simulator.Error, match="Failed to acquire device Id 1"):
        compiled(simulator.Options().useIpuId(1))


@pytest.mark.parametrize("number", [2, 3, 99])
def test_a_number_of_another_size_or_of_nothing_is_refused(number):
    with pytest.raises(simulator.Error, match=f"Failed to acquire device Id {number} with 1"):
        compiled(simulator.Options().useIpuId(number))


def test_devices_are_numbered_by_size():
    assert list_devices(4) == [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]


def test_a_power_of_two_is_reserved():
    assert [count_reserved_ipus(number, may_round=True) for number in (1, 2, 3, 5, 8)] == [1, 2, 4, 8, 8]
    with pytest.raises(simulator.Error, match="The model specifies the use of 3 IPUs, however .* a minimum of 4"):
        count_reserved_ipus(3, may_round=False)


# -- claims


def test_a_claim_is_released_once():
    first = claim_device(simulator.Options(), 2)
    first.release()
    second = claim_device(simulator.Options(), 2)

    first.release()

    with pytest.raises(simulator.Error, match="Failed to acquire"):
        claim_device(simulator.Options(), 1)
    assert isinstance(second, Claim)
