"""The public names are sorted, there, and loaded only when somebody asks for them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

import porting

MODULES = sorted(
    ".".join(path.relative_to(Path(porting.__file__).parents[1]).with_suffix("").parts).replace(".__init__", "")
    for path in Path(porting.__file__).parent.rglob("*.py")
    if path.name != "__main__.py" and "recipes" not in path.parts
)


def loaded_after(program: str) -> List[str]:
    """Run a program in a fresh interpreter and list the modules that it has loaded."""
    program += "\nimport sys; print(*sys.modules)"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("name", porting.__all__)
def test_every_public_name_can_be_had(name):
    # `check` is a package that is called
    assert getattr(porting, name).__name__.rpartition(".")[2].startswith(name)


def test_the_public_names_are_sorted():
    assert porting.__all__ == sorted(porting.__all__)


def test_dir_lists_public_names_that_are_not_loaded_yet():
    program = "import porting; missing = set(porting.__all__) - set(dir(porting)); assert not missing, missing"

    assert "porting.api" not in loaded_after(program)


@pytest.mark.parametrize(
    ("name", "home"),
    [
        ("ComputeMode", "porting.compute_mode"),
        ("load_chainer_npz", "porting.adapters"),
        ("masked_accuracy", "porting.adapters"),
        ("sum_over_instances", "porting.adapters"),
    ],
)
def test_a_name_that_lives_in_its_package_is_still_found_at_the_door(name, home):
    found = getattr(porting, name)

    assert found is getattr(importlib.import_module(home), name)
    assert name not in porting.__all__
    assert name not in dir(porting)


@pytest.mark.parametrize("name", ["Checkpoint", "LossTerm", "PortingWarning", "load_checkpoint", "save_checkpoint"])
def test_what_users_of_losses_and_checkpoints_need_is_public(name):
    assert name in porting.__all__
    assert getattr(porting, name) is getattr(importlib.import_module("porting.adapters"), name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'porting' has no attribute 'to_gpu'"):
        porting.to_gpu  # noqa: B018 - asking for it is the test


def test_import_porting_loads_neither_torch_nor_numpy():
    assert not {"torch", "numpy"} & set(loaded_after("import porting"))


def test_a_finding_can_be_had_without_torch():
    assert "torch" not in loaded_after("from porting import Finding, PortingError, render")


@pytest.mark.parametrize("module", MODULES)
def test_what_a_module_calls_public_is_there(module):
    loaded = importlib.import_module(module)

    assert [name for name in getattr(loaded, "__all__", []) if not hasattr(loaded, name)] == []
