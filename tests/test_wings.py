"""The core works without its wings: a copy of the package that lacks their folders trains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Sequence

import pytest

import porting
from tests.docs.page_blocks import blocks_of

PACKAGE = Path(porting.__file__).parent
README = PACKAGE.parent / "README.md"
COMPILERS = ("engines/aot", "engines/compiled", "engines/recurrence", "engines/tuning")

ASK_FOR = """
import torch
from porting import PortOptions, to_ipu

ported = to_ipu(torch.nn.Linear(4, 3), torch.nn.MSELoss(), options=PortOptions(engine="{engine}"))
ported.compile(torch.ones(8, 4), torch.ones(8, 3))
print(*ported.report().findings, sep="\\n")
"""


@pytest.fixture(scope="module")
def run_without(tmp_path_factory):
    """Return a function that runs a program with a copy of the package which lacks some folders."""
    copies = {}

    def run_without(folders: Sequence[str], program: str) -> subprocess.CompletedProcess[str]:
        if folders not in copies:
            copies[folders] = tmp_path_factory.mktemp("core")
            shutil.copytree(PACKAGE, copies[folders] / "porting", ignore=shutil.ignore_patterns("__pycache__"))
            for folder in folders:
                shutil.rmtree(copies[folders] / "porting" / folder)
        file = copies[folders] / "train.py"
        file.write_text(program)
        environment = {**os.environ, "PYTHONPATH": str(copies[folders]), "PORTING_ENGINE": ""}
        return subprocess.run([sys.executable, str(file)], capture_output=True, text=True, env=environment)

    return run_without


@pytest.fixture(scope="module")
def ten_lines():
    """Return the program of README's first screen."""
    return next(block.source for block in blocks_of(README) if block.file_name == "train.py")


def test_the_core_trains_without_compilers(run_without, ten_lines):
    ended = run_without(COMPILERS, ten_lines)

    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^training .* replay ", ended.stdout, re.MULTILINE)
    assert ended.stdout.count("E015") == 1


def test_who_asks_for_the_fastest_engine_is_told_that_there_are_no_compilers(run_without):
    ended = run_without(COMPILERS, ASK_FOR.format(engine="auto"))

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("E015") == 1
    assert "`porting.engines.tuning`" in ended.stdout


@pytest.mark.parametrize("engine", ["aot", "recurrence"])
def test_an_engine_that_is_asked_for_by_name_is_refused_without_compilers(run_without, engine):
    ended = run_without(COMPILERS, ASK_FOR.format(engine=engine))

    assert ended.returncode != 0
    assert f"error[P004]: the engine `{engine}` cannot be used: the compilers are not installed" in ended.stderr
