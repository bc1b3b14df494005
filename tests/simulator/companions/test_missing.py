"""A stand-in has the names that programs use, and says of every other that it is a stand-in."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

import porting.simulator as simulator
from porting.simulator import companions

MODULES = [
    "examples_utils",
    "examples_utils.load_lib_utils",
    "examples_utils.load_lib_utils.load_lib_utils",
    "examples_utils.testing",
    "examples_utils.testing.test_commands",
    "horovod",
    "horovod.torch",
    "libpvti",
    "popart",
    "popdist",
    "popdist.poptorch",
]

each_module = pytest.mark.parametrize("name", MODULES)


@each_module
def test_a_stand_in_is_the_module_of_this_package(name):
    assert importlib.import_module(name) is sys.modules[f"porting.simulator.companions.{name}"]


@each_module
def test_any_other_name_says_that_it_is_a_stand_in(name):
    module = importlib.import_module(name)

    with pytest.raises(simulator.Error, match=f"`{name}.fly`") as caught:
        module.fly  # noqa: B018 - asking for it is the test

    assert caught.value.finding.code == "S001"
    assert "is a stand-in" in str(caught.value)
    assert not hasattr(module, "fly")


@each_module
def test_names_that_python_looks_for_are_simply_absent(name):
    with pytest.raises(AttributeError, match="__wrapped__") as caught:
        importlib.import_module(name).__wrapped__  # noqa: B018 - asking for it is the test

    assert not isinstance(caught.value, simulator.Error)


@each_module
def test_what_it_calls_public_is_there(name):
    module = importlib.import_module(name)

    assert [public for public in getattr(module, "__all__", []) if not hasattr(module, public)] == []


def test_providing_them_again_changes_nothing():
    before = list(sys.meta_path)

    companions.provide()

    assert sys.meta_path == before


def test_values_of_a_stand_in_reach_other_processes():
    import popart

    assert pickle.loads(pickle.dumps(popart.SyntheticDataMode.Zeros)) is popart.SyntheticDataMode.Zeros
