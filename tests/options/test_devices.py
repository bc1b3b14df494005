"""Devices have names; other packages bring backends with names of their own."""

from __future__ import annotations

import sys
import types
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import porting.simulator
from porting import register_backend, to_ipu
from porting.diagnostics import OptionError
from porting.options import devices
from porting.options.devices import list_devices, load_backend, read_requested_device


@pytest.fixture(autouse=True)
def no_backends(monkeypatch):
    """Let no backend be registered before a test, nor after it."""
    monkeypatch.setattr(devices, "_REGISTERED", {})


def test_the_device_is_chosen_by_the_environment(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "sim")

    assert read_requested_device() == "sim"


def test_an_argument_wins_over_the_environment(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "nonsense")

    assert read_requested_device("ipu") == "ipu"


@pytest.mark.parametrize("value", [None, "", "  "])
def test_without_a_choice_the_device_is_auto(monkeypatch, value):
    monkeypatch.delenv("PORTING_DEVICE", raising=False)
    if value is not None:
        monkeypatch.setenv("PORTING_DEVICE", value)

    assert read_requested_device() == "auto"


def test_an_unknown_device_in_the_environment_is_named(monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "gpu")

    with pytest.raises(OptionError, match="PORTING_DEVICE is 'gpu'") as caught:
        read_requested_device()

    assert caught.value.code == "P005"


def test_an_unknown_device_argument_is_named():
    with pytest.raises(OptionError, match="`device` is 'gpu'") as caught:
        read_requested_device("gpu")

    assert caught.value.code == "P002"


# -- backends of others ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [porting.simulator, "porting.simulator"], ids=["module", "path"])
def test_a_registered_backend_is_a_device(module, monkeypatch):
    register_backend("mine", module)
    model = nn.Linear(4, 2)
    batch = torch.ones(3, 4), torch.tensor([0, 1, 0])

    assert list_devices() == ("auto", "ipu", "sim", "mine")
    for device in ("mine", "auto"):
        monkeypatch.setenv("PORTING_DEVICE", "mine")
        ported = to_ipu(model, nn.CrossEntropyLoss(), device=device)
        ported(*batch)
        assert ported.report().device.startswith("backend mine (porting.simulator ")


def test_a_name_is_given_to_the_module_that_was_registered_last():
    register_backend("mine", "porting.nothing")
    register_backend("mine", "porting.simulator")

    assert load_backend("mine") is porting.simulator


def test_an_entry_point_registers_a_backend(monkeypatch):
    entry = SimpleNamespace(name="theirs", value="porting.simulator")
    monkeypatch.setattr(devices, "read_entry_points", lambda group: {"theirs": entry} if "backends" in group else {})

    assert read_requested_device("theirs") == "theirs"
    assert load_backend("theirs") is porting.simulator


@pytest.mark.parametrize("name", ["ipu", "sim", "auto", "", "a b", 3])
def test_a_name_that_is_none_or_taken_is_refused(name):
    with pytest.raises(OptionError, match="a backend cannot be called"):
        register_backend(name, porting.simulator)


@pytest.mark.parametrize("module", [None, "", 3, nn.Linear])
def test_what_is_no_module_is_refused(module):
    with pytest.raises(OptionError, match="the backend `mine` is a"):
        register_backend("mine", module)


@pytest.mark.parametrize("path", ["porting.nothing", "porting.simulator:nothing", "no_such_package"])
def test_a_module_that_cannot_be_imported_is_named_with_the_reason(path):
    register_backend("mine", path)

    with pytest.raises(OptionError, match="the backend `mine` cannot be loaded from") as caught:
        to_ipu(nn.Linear(2, 2), nn.MSELoss(), device="mine")

    assert path in str(caught.value)


def test_a_module_without_the_names_of_a_backend_is_refused(monkeypatch):
    incomplete = types.ModuleType("incomplete")
    monkeypatch.setitem(sys.modules, "incomplete", incomplete)
    incomplete.Options = porting.simulator.Options
    register_backend("mine", "incomplete")

    with pytest.raises(OptionError, match="the backend `mine` has no `trainingModel`") as caught:
        to_ipu(nn.Linear(2, 2), nn.MSELoss(), device="mine")

    assert "porting backend check incomplete" in str(caught.value)
