"""The command `porting` on the hardware path: what needs capture says C009 in a message, never in a traceback."""

from __future__ import annotations

import pytest

poptorch = pytest.importorskip("poptorch", reason="the vendor's front end")

TARGET = """
import torch

def make():
    return torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), (torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
"""
COMMANDS = ["backend", "bench", "cache", "compile", "explain", "export", "graph", "memory", "recipe", "run"]


@pytest.fixture
def folder(tmp_path):
    """Give a folder with a target of the command, and a program written for PopTorch."""
    (tmp_path / "target.py").write_text(TARGET)
    (tmp_path / "train.py").write_text("import torch, poptorch\nprint('ran with', poptorch.__version__)\n")
    return tmp_path


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_a_command_tells_its_usage(arguments, fresh):
    ended = fresh.command(arguments)

    assert ended.status == 0, ended.output
    assert "usage" in ended.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--version"], "porting"),
        (["explain", "C009"], "too old"),
        (["cache", "list"], ""),
        (["recipe", "list"], "first_port"),
        (["recipe", "show", "first_port"], "Step"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_that_captures_nothing_works(arguments, told, fresh, tmp_path):
    ended = fresh.command(arguments, folder=tmp_path)

    assert ended.status == 0, ended.output
    assert told in ended.output


def test_a_recipe_can_be_copied(fresh, tmp_path):
    assert fresh.command(["recipe", "copy", "first_port", "mine"], folder=tmp_path).status == 0
    assert (tmp_path / "mine" / "step_0_plain.py").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["memory", "target.py:make"],
        ["export", "target.py:make", "-o", "a.step"],
        ["compile", "target.py:make"],
        ["graph", "target.py:make"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_that_captures_says_c009(arguments, fresh, folder):
    ended = fresh.command(arguments, folder=folder)

    assert "error[C009]" in ended.output
    assert "Traceback" not in ended.output
    assert ended.status != 0


def test_bench_measures_the_device(fresh, folder):
    ended = fresh.command(["bench", "target.py:make", "--quick"], folder=folder)

    assert ended.status == 0, ended.output


@pytest.mark.parametrize("choice", [[], ["--device", "ipu"]], ids=["auto", "ipu"])
def test_run_gives_a_program_the_vendors_module(choice, fresh, folder):
    ended = fresh.command(["run", *choice, "train.py"], folder=folder)

    assert f"ran with {poptorch.__version__}" in ended.output
    assert ended.status == 0, ended.output
