"""Which module a port runs on, and how the choice is explained."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from porting.adapters.backends import find_backend
from porting.diagnostics import DeviceError, OptionError, Severity

SIMULATOR = SimpleNamespace(__name__="porting.simulator")


@pytest.fixture(autouse=True)
def _no_choice_in_the_environment(monkeypatch):
    monkeypatch.delenv("PORTING_DEVICE", raising=False)


@pytest.fixture
def no_vendor(monkeypatch):
    """Make `import poptorch` fail as on a machine that has never seen it."""
    monkeypatch.setitem(sys.modules, "poptorch", None)


@pytest.fixture
def vendor(monkeypatch):
    """Put a module in PopTorch's place whose IPU can be taken away."""
    module = ModuleType("poptorch")
    module.__version__ = "3.3.0"
    module.ipuHardwareIsAvailable = lambda: True
    module.ipuHardwareVersion = lambda: 21
    monkeypatch.setitem(sys.modules, "poptorch", module)
    return module


def test_sim_is_the_simulator_without_remarks():
    backend = find_backend("sim", simulator=SIMULATOR)

    assert backend.module is SIMULATOR
    assert backend.is_simulator
    assert backend.name == "porting.simulator"
    assert backend.finding is None


def test_the_simulator_is_loaded_only_when_needed(vendor):
    backend = find_backend("auto", simulator=lambda: pytest.fail("loaded"))

    assert backend.module is vendor


def test_a_loader_gives_the_simulator():
    backend = find_backend("sim", simulator=lambda: SIMULATOR)

    assert backend.module is SIMULATOR


def test_auto_takes_the_hardware_where_there_is_some(vendor):
    backend = find_backend("auto", simulator=SIMULATOR)

    assert (backend.name, backend.is_simulator, backend.finding) == ("poptorch", False, None)
    assert backend.device_description == "IPU (hardware version 21, poptorch 3.3.0)"


def test_auto_says_that_the_simulator_stands_in(no_vendor):
    backend = find_backend("auto", simulator=SIMULATOR)

    assert backend.is_simulator
    assert backend.finding.code == "D002"
    assert backend.finding.severity is Severity.NOTE
    assert backend.finding.notes == (f"poptorch is not installed for {sys.executable}",)


def test_auto_says_that_poptorch_found_no_ipu(vendor):
    vendor.ipuHardwareIsAvailable = lambda: False

    backend = find_backend("auto", simulator=SIMULATOR)

    assert backend.is_simulator
    assert "3.3.0 is installed, but finds no IPU" in backend.finding.notes[0]


def test_ipu_without_poptorch_is_an_error_with_the_reason(no_vendor):
    with pytest.raises(DeviceError, match="is not installed for") as caught:
        find_backend("ipu", simulator=SIMULATOR)

    assert caught.value.code == "D001"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_ipu_without_hardware_is_an_error_with_the_reason(vendor):
    vendor.ipuHardwareIsAvailable = lambda: False

    with pytest.raises(DeviceError, match="finds no IPU on this machine"):
        find_backend("ipu", simulator=SIMULATOR)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("raise ImportError('libpoplar.so: cannot open shared object file')", ImportError),
        ("import a_module_that_poptorch_needs", ModuleNotFoundError),
        ("assert False, 'torch 2.0.1 is needed'", AssertionError),
        ("import torch; torch.a_name_of_another_version", AttributeError),
    ],
)
def test_a_broken_poptorch_is_not_taken_for_a_missing_one(tmp_path, monkeypatch, source, cause):
    (tmp_path / "poptorch.py").write_text(source + "\n")
    monkeypatch.delitem(sys.modules, "poptorch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(DeviceError, match="is installed, but importing it failed with") as caught:
        find_backend("ipu", simulator=SIMULATOR)

    assert type(caught.value.__cause__) is cause


def test_auto_mentions_a_broken_poptorch(tmp_path, monkeypatch):
    (tmp_path / "poptorch.py").write_text("raise ImportError('libpoplar.so is missing')\n")
    monkeypatch.delitem(sys.modules, "poptorch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    backend = find_backend("auto", simulator=SIMULATOR)

    assert backend.is_simulator
    assert "ImportError: libpoplar.so is missing" in backend.finding.notes[0]


def test_the_simulator_under_the_vendors_name_is_no_ipu(vendor):
    vendor.__name__ = "porting.simulator"

    with pytest.raises(DeviceError, match="the module `poptorch` of this process is the simulator"):
        find_backend("ipu", simulator=SIMULATOR)


def test_the_environment_decides_where_the_argument_does_not(monkeypatch, vendor):
    monkeypatch.setenv("PORTING_DEVICE", "sim")

    assert find_backend(simulator=SIMULATOR).is_simulator
    assert not find_backend("ipu", simulator=SIMULATOR).is_simulator


def test_an_unknown_device_is_refused():
    with pytest.raises(OptionError, match="`device` is 'tpu'"):
        find_backend("tpu", simulator=SIMULATOR)
