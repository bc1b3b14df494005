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
# in the contract, what may be missing is in brackets
WINGS = re.findall(r"\((\w+)\)", LAYERS["importlinter:contract:layers"]["layers"])

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
"""


@pytest.fixture
def run_without(tmp_path):
    """Give a function that runs a program with a package that lacks the given wings."""

    def run(wings, *arguments):
        folder = tmp_path / "porting"
        folder.mkdir()
        for path in PACKAGE.iterdir():
            if path.stem not in wings and path.name != "__pycache__":
                (folder / path.name).symlink_to(path)
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    return run


def test_all_that_is_not_core_may_be_deleted(run_without):
    ended = run_without(WINGS, "-c", _IMPORT_ALL + _TRAIN)

    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("wing", WINGS)
def test_the_core_trains_without_one_wing(run_without, wing):
    ended = run_without([wing], "-c", _TRAIN)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_verb_of_a_missing_wing_says_what_is_missing(run_without):
    ended = run_without(WINGS, "-m", "porting", "verify", "train.py:make")

    assert ended.returncode == 2
    assert "lacks `porting.verify`, which `porting verify` needs" in ended.stderr


def test_verbs_of_the_core_work_without_wings(run_without):
    ended = run_without(WINGS, "-m", "porting", "explain", "C001")

    assert (ended.returncode, ended.stdout.split("\n")[0]) == (0, "# C001: host-read")
