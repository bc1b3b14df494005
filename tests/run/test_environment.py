"""Which device a program runs on, and the environment that leads every Python to the simulator."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

import porting.run
from porting.diagnostics import DeviceError, OptionError
from porting.run import is_simulated, simulated_environment, vendor_environment

BOOTSTRAP = str(Path(porting.run.__file__).parent / "bootstrap")


def test_the_bootstrap_comes_before_the_programs_own_folders():
    changed = simulated_environment({"PYTHONPATH": os.pathsep.join(["a", "b"])})

    assert changed["PYTHONPATH"].split(os.pathsep) == [BOOTSTRAP, "a", "b"]


def test_a_simulated_program_within_another_adds_nothing():
    once = simulated_environment({})

    assert simulated_environment(once) == once


@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({"PORTING_SIM_HARDWARE": "0"}, "0")])
def test_simulated_devices_count_as_hardware_unless_somebody_said_otherwise(given, found):
    assert simulated_environment(given)["PORTING_SIM_HARDWARE"] == found


def test_for_hardware_the_bootstrap_is_taken_out_again():
    inner = simulated_environment({"PYTHONPATH": "mine"})

    assert vendor_environment(inner)["PYTHONPATH"] == "mine"


def test_the_given_environment_is_not_changed():
    given = {"PYTHONPATH": "mine"}

    simulated_environment(given)

    assert given == {"PYTHONPATH": "mine"}


# the device, as `--device`, PORTING_DEVICE and what is installed say


@pytest.fixture
def vendor(monkeypatch):
    """Give a function that installs a vendor's module, with an IPU or without."""

    def install(*, has_ipu):
        module = types.ModuleType("poptorch")
        module.__spec__ = types.SimpleNamespace(name="poptorch")
        module.__version__ = "3.4.0"
        module.ipuHardwareIsAvailable = lambda: has_ipu
        module.ipuHardwareVersion = lambda: 21
        monkeypatch.setitem(sys.modules, "poptorch", module)

    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    return install


@pytest.fixture
def no_vendor(monkeypatch):
    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    monkeypatch.setattr("porting.run.environment.importlib.util.find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "poptorch", None)


def test_auto_takes_the_ipu_where_there_is_one(vendor):
    vendor(has_ipu=True)

    assert not is_simulated("auto")


def test_auto_takes_the_simulator_where_the_vendors_module_finds_no_ipu(vendor):
    vendor(has_ipu=False)

    assert is_simulated("auto")


def test_auto_takes_the_simulator_where_nothing_is_installed(no_vendor):
    assert is_simulated("auto")


def test_sim_is_the_simulator_on_hardware_too(vendor):
    vendor(has_ipu=True)

    assert is_simulated("sim")


def test_the_environment_decides_when_nothing_was_said(vendor, monkeypatch):
    vendor(has_ipu=True)
    monkeypatch.setenv("PORTING_DEVICE", "sim")

    assert is_simulated("auto")
    assert not is_simulated("ipu")


def test_an_ipu_that_is_not_there_is_an_error(vendor):
    vendor(has_ipu=False)

    with pytest.raises(DeviceError, match="finds no IPU on this machine") as caught:
        is_simulated("ipu")

    assert caught.value.code == "D001"


def test_a_misspelt_environment_variable_is_an_error(no_vendor, monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "gpu")

    with pytest.raises(OptionError, match="PORTING_DEVICE"):
        is_simulated("auto")
