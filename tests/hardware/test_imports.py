"""What a program imports on the hardware path is there; what needs capture says so, by C009."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict

import pytest

import porting
from tests.hardware.fresh_process import FreshProcesses

PACKAGE = Path(porting.__file__).parent

# names and packages that capture a model on the CPU, for which torch 2.0 is too old
NEED_CAPTURE = (
    "StepGraph",
    "capture_step",
    "compile_step",
    "dump_graph",
    "export",
    "load_step",
    "memory_report",
    "plan",
)
CAPTURING = ("capture", "engines", "executables", "exports", "planning", "simulator")
# packages and modules within others that capture when they are used; nothing that loads early imports them
CAPTURING_PARTS = (
    "analysis.gradient_paths",
    "analysis.last_readers",
    "analysis.narrowed_values",
    "analysis.operator_limits",
    "analysis.operator_support",
    "analysis.step_checks",
    "analysis.step_effects",
    "bench.plan_growth",
    "check.batch_look",
    "check.freeze_search",
    "check.model_check",
    "check.index_ranges",
    "check.step_capture",
    "verify.fault_location",
)
# modules that an extra brings, which a machine with IPUs need not have
OF_EXTRAS = ("convert.", "source.patches.edits", "source.patches.fixes")
# a name of a package that is there, as `porting.check` is, and captures when it is called
CAPTURE_WHEN_CALLED = ("check",)
MAY_NEED_CAPTURE = (*NEED_CAPTURE, *CAPTURE_WHEN_CALLED)

MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).replace(".__init__", "")
    for path in PACKAGE.rglob("*.py")
    if path.name != "__main__.py" and "skeleton" not in path.parts
)
# every module of a recipe is a program: its steps are run by test_recipes.py
NOT_ORDINARY = ("porting.recipes.", *(f"porting.{part}" for part in (*CAPTURING, *CAPTURING_PARTS, *OF_EXTRAS)))
ORDINARY = [name for name in MODULES if not name.startswith(NOT_ORDINARY)]

IMPORT_ALL = """
import importlib, json, sys, traceback

def ask(function):
    try:
        function()
    except Exception as error:
        return getattr(error, "code", None) or traceback.format_exc()
    return "there"

told = {}
for name in MODULES:
    told[name] = ask(lambda: importlib.import_module(name))
    for public in getattr(sys.modules.get(name), "__all__", []):
        told[f"{name}.{public}"] = ask(lambda: getattr(importlib.import_module(name), public))
with open("told.json", "w") as file:
    json.dump(told, file)
"""


@pytest.fixture(scope="module")
def imported(fresh: FreshProcesses, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, str]:
    """Import all modules, and ask each for its public names: "there", the code of a finding, or a traceback."""
    folder = tmp_path_factory.mktemp("imports")
    ended = fresh.run(f"MODULES = {MODULES!r}\n{IMPORT_ALL}", folder=folder)
    assert ended.status == 0, ended.output
    return json.loads((folder / "told.json").read_text())


def test_a_program_can_import_the_package(fresh):
    assert fresh.run("import porting; porting.PortOptions()").output == ""


@pytest.mark.parametrize("name", [name for name in porting.__all__ if name not in NEED_CAPTURE])
def test_a_public_name_can_be_imported_first(name, fresh):
    assert fresh.run(f"from porting import {name}").output == ""


@pytest.mark.parametrize("name", NEED_CAPTURE)
def test_a_public_name_that_captures_says_c009(name, fresh):
    program = f"import porting\ntry:\n    porting.{name}\nexcept porting.PortingError as error:\n    print(error.code)"

    assert fresh.run(program).output == "C009\n"


def names_of(module, imported):
    """Return what was told of a module and of its public names, by their names."""
    names = [name for name in imported if name.rpartition(".")[0] == module and name not in MODULES]
    return {name.rpartition(".")[2]: imported[name] for name in [module, *names]}


@pytest.mark.parametrize("module", ORDINARY)
def test_a_module_is_there_with_its_public_names(module, imported):
    told = names_of(module, imported)

    assert {name: said for name, said in told.items() if said != "there" and name not in MAY_NEED_CAPTURE} == {}
    assert {said for name, said in told.items() if name in MAY_NEED_CAPTURE} <= {"there", "C009"}


@pytest.mark.parametrize("package", CAPTURING)
def test_a_package_that_captures_is_there_or_says_c009(package, imported):
    told = names_of(f"porting.{package}", imported)

    assert {name: said for name, said in told.items() if said not in ("there", "C009")} == {}


@pytest.mark.parametrize("module", ["porting.capture", "porting.simulator"])
def test_a_module_that_needs_capture_says_c009(module, imported):
    assert imported[module] == "C009"


def test_the_simulator_is_refused_by_c009(fresh):
    program = "import torch, porting\nporting.to_ipu(torch.nn.Linear(2, 2), torch.nn.MSELoss(), device='sim')"

    assert "error[C009]" in fresh.run(program).output
