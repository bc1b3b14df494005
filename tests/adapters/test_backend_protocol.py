"""What a module must offer to be a backend."""

from __future__ import annotations

from types import ModuleType

import porting.simulator as poptorch
from porting.adapters.backend_protocol import EXECUTOR_NAMES, MODULE_NAMES, list_missing_names


def test_the_simulator_has_every_name():
    assert list(list_missing_names(poptorch, MODULE_NAMES)) == []


def test_what_an_empty_module_lacks_is_all():
    assert set(list_missing_names(ModuleType("empty"), MODULE_NAMES)) == set(MODULE_NAMES)


def test_a_name_within_a_name_is_looked_for():
    module = ModuleType("half")
    module.optim = ModuleType("optim")
    module.optim.SGD = object

    missing = list_missing_names(module, MODULE_NAMES)

    assert "optim.SGD" not in missing
    assert "optim.Adam" in missing


def test_an_executor_has_more_names_than_its_call():
    assert {"compile", "attachToDevice", "copyWeightsToHost"} <= set(EXECUTOR_NAMES)
