"""One process exports a step, another compiles it, and a third shows its graph; what does not fit is refused."""

from __future__ import annotations

import json
import sys

import pytest

from porting.cli.main import main

TRAIN = """
import torch
from torch import nn

def make(batch_size=8):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 3))
    batch = torch.ones(batch_size, 4), torch.zeros(batch_size, dtype=torch.long)
    return model, nn.CrossEntropyLoss(), batch, torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with a program; nothing of it stays loaded."""
    (tmp_path / "exported_of_test.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("_of_test") or name.startswith("_porting_target"):
            del sys.modules[name]


@pytest.fixture
def step(folder, capsys):
    """Export the target and give the file's name."""
    assert main(["export", "exported_of_test.py:make", "--batch", "4", "-o", "model.step"]) == 0
    capsys.readouterr()
    return "model.step"


def test_an_export_says_what_it_is(folder, capsys):
    status = main(["export", "exported_of_test.py:make", "--batch", "4", "--accumulation", "2", "-o", "model.step"])

    said = capsys.readouterr().out
    assert status == 0
    assert "training step of exported_of_test.py:make, batch 4 x 2 accumulation = 8 samples a call" in said


def test_a_compilation_keeps_an_executable(step, capsys, interpreted_engine):
    first = main(["compile", step, "--cache", "cache", "--engine", "interpreted"])
    second = main(["compile", step, "--cache", "cache", "--engine", "interpreted"])

    said = capsys.readouterr().out
    assert (first, second) == (0, 0)
    assert "compiled and kept in the cache" in said
    assert "it was in the cache" in said


def test_a_target_is_exported_and_compiled_in_one_go(capsys, interpreted_engine):
    status = main(["compile", "exported_of_test.py:make", "--cache", "cache", "--engine", "interpreted"])

    assert status == 0
    assert interpreted_engine.calls.count("compile") == 1


def test_a_compilation_that_fails_ends_with_a_status(step, capsys, interpreted_engine, monkeypatch):
    monkeypatch.setattr(interpreted_engine, "compile", lambda *_a, **_k: 1 / 0)

    status = main(["compile", step, "--cache", "cache", "--engine", "interpreted"])

    assert status == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--batch", "16"], "E025"),
        (["--accumulation", "2"], "E025"),
        (["--mode", "inference"], "E025"),
        (["--precision", "mixed"], "E025"),
        (["--computation-order", "sqrt"], "E026"),
        (["--dump-graph", "png"], "E028"),
        (["--engine", "warp-drive"], "P004"),
    ],
)
def test_what_does_not_fit_the_exported_step_is_refused(step, capsys, options, code):
    assert main(["compile", step, "--cache", "cache", *options]) == 1
    assert f"error[{code}]" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_a_finding(capsys):
    assert main(["export", "exported_of_test.py:make", "-o", "nowhere/model.step"]) == 1
    assert "error[E029]" in capsys.readouterr().err


def test_a_missing_step_is_a_finding(capsys):
    assert main(["compile", "missing.step"]) == 1
    assert "error[E023]" in capsys.readouterr().err


def test_dumps_lie_beside_the_step_or_where_they_are_sent(folder, capsys):
    dumps = ["--dump-graph", "dot", "--dump-graph", "json=other.json", "--dump-graph", "text"]

    main(["export", "exported_of_test.py:make", "-o", "model.step", *dumps])

    assert (folder / "model.dot").read_text().startswith("digraph")
    assert json.loads((folder / "other.json").read_text())["batch"]["micro"] == 8
    assert (folder / "model.txt").exists()


def test_a_graph_is_shown_on_the_standard_output(capfd):
    main(["graph", "exported_of_test.py:make", "--as", "json"])

    assert json.loads(capfd.readouterr().out)["schema"] == "porting.graph/1"


def test_computation_orders_are_compared(step, capsys):
    main(["graph", step, "--orders", "none,chen,gttime,gtmem"])

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == "order none chen gttime gtmem".split()
