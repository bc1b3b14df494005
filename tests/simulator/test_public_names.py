"""The package as programs see it: its list of names, its errors, and what it says of hardware."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting.simulator as simulator


def test_unknown_names_are_plain_attribute_errors():
    with pytest.raises(AttributeError, match="module 'porting.simulator' has no attribute 'wibble'"):
        simulator.wibble  # noqa: B018


def test_the_listed_names_are_the_public_ones():
    assert dir(simulator) == sorted(simulator.__all__)


def test_there_is_no_hardware():
    assert not simulator.ipuHardwareIsAvailable()
    with pytest.raises(AssertionError, match="No IPU hardware available on this system"):
        simulator.ipuHardwareVersion()


def test_unknown_compiler_options_are_refused_when_the_model_compiles():
    options = simulator.Options()
    options._Popart.set("wibble", 1)
    executor = simulator.inferenceModel(nn.ReLU(), options)

    with pytest.raises(simulator.Error, match="Unknown uint64 option wibble"):
        executor(torch.ones(1))


def test_printing_a_model_shows_its_blocks_and_then_the_object(capsys):
    simulator.print(nn.ReLU())

    assert capsys.readouterr().out.splitlines() == ["ReLU()", "ReLU()"]


def test_a_models_text_has_its_hooks_in_front_of_the_class():
    class Hook:
        def __call__(self, module, inputs):
            return None

        def __repr__(self):
            return "Hook()"

    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    model[0].register_forward_pre_hook(Hook())

    assert simulator.module_repr(model) == (
        "Sequential(\n  (0): Hook() Linear(in_features=1, out_features=2, bias=True)\n  (1): ReLU()\n)"
    )


def test_the_errors_are_those_of_the_modules():
    assert simulator.Error is simulator.poptorch_core.Error
    assert simulator.ConfigFileError is simulator.options.ConfigFileError


def test_names_that_programs_reach_for_are_there():
    assert simulator.torch is torch
    assert simulator.logger.name == "poptorch::python"
    assert simulator.ATTR_PREFIX == "attr:"
    assert simulator.BlockId is str
