"""The core without its wings: it imports and trains where their folders are deleted."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "porting"
LAYERS = configparser.ConfigParser()
LAYERS.read(ROOT / "setup.cfg", encoding="utf-8")
COMPILERS = ("engines/aot", "engines/compiled", "engines/recurrence", "engines/tuning")
# in the contract, what may be missing is in brackets
WINGS = (*re.findall(r"\((\w+)\)", LAYERS["importlinter:contract:layers"]["layers"]), *COMPILERS)

_IMPORT_ALL = """
import importlib, pkgutil, porting
for module in pkgutil.walk_packages(porting.__path__, "porting."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
_TRAIN = """
import torch
from torch import nn
import porting

model, loss = nn.Linear(3, 2), nn.CrossEntropyLoss()
ported = porting.to_ipu(model, loss, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
losses = [float(ported(torch.ones(4, 3), torch.zeros(4, dtype=torch.long))[-1]) for _step in range(3)]
assert losses == sorted(losses, reverse=True), losses
assert ported.inference()(torch.ones(4, 3)).shape == (4, 2)
print(ported.report())
"""
_ASK_FOR = """
import torch
from porting import PortOptions, to_ipu

ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.MSELoss(), options=PortOptions(engine="{engine}"))
ported.compile(torch.ones(8, 4), torch.ones(8, 3))
print(*ported.report().findings, sep="\\n")
"""


@pytest.fixture
def run_without(tmp_path):
    """Give a function that runs a program with a package that lacks the given wings."""

    def run(wings, *arguments):
        link_package(PACKAGE, tmp_path / "porting", set(wings))
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1", "PORTING_ENGINE": ""}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


def link_package(package, folder, left_out):
    """Make a package of links to the modules and folders of another, without some of them."""
    folder.mkdir()
    for path in package.iterdir():
        name = path.relative_to(PACKAGE).with_suffix("").as_posix()
        if path.is_dir() and any(wing.startswith(f"{name}/") for wing in left_out):
            link_package(path, folder / path.name, left_out)
        elif name not in left_out and path.name != "__pycache__":
            (folder / path.name).symlink_to(path)


@pytest.mark.slow
def test_all_that_is_not_core_may_be_deleted(run_without):
    ended = run_without(WINGS, "-c", _IMPORT_ALL + _TRAIN)

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^training .* replay ", ended.stdout, re.MULTILINE)


@pytest.mark.slow
def test_without_compilers_it_is_said_once_that_a_port_trains_by_replay(run_without):
    ended = run_without(COMPILERS, "-c", _TRAIN)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("E015") == 1


@pytest.mark.slow
@pytest.mark.parametrize("wing", [wing for wing in WINGS if "/" not in wing])
def test_the_core_trains_without_one_wing(run_without, wing):
    ended = run_without([wing], "-c", _TRAIN)

    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_who_asks_for_the_fastest_engine_is_told_that_there_are_no_compilers(run_without):
    ended = run_without(COMPILERS, "-c", _ASK_FOR.format(engine="auto"))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("E015") == 1
    assert "`porting.engines.tuning`" in ended.stdout


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["aot", "recurrence"])
def test_an_engine_that_is_asked_for_by_name_is_refused_without_compilers(run_without, engine):
    ended = run_without(COMPILERS, "-c", _ASK_FOR.format(engine=engine))

    assert ended.returncode != 0
    assert f"error[P004]: the engine `{engine}` cannot be used: the compilers are not installed" in ended.stderr


def test_a_verb_of_a_missing_wing_says_what_is_missing(run_without):
    ended = run_without(WINGS, "-m", "porting", "verify", "train.py:make")

    assert ended.returncode == 2
    assert "lacks `porting.verify`, which `porting verify` needs" in ended.stderr


def test_verbs_of_the_core_work_without_wings(run_without):
    ended = run_without(WINGS, "-m", "porting", "explain", "C001")

    assert (ended.returncode, ended.stdout.split("\n")[0]) == (0, "# C001: host-read")
