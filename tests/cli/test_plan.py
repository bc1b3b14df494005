"""`porting plan`, also as `porting memory`: a table, and an exit status that a script can go by."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main

PROGRAM = """
import torch

def make(batch_size=4, width=64):
    model = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    batch = torch.zeros(batch_size, 16), torch.zeros(batch_size, dtype=torch.int64)
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters())

def make_large():
    return make(width=16_000_000)
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "train_small.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def test_a_step_that_fits_has_status_0(target, capsys):
    assert main(["memory", f"{target}:make", "--batch", "8"]) == 0

    shown = capsys.readouterr().out
    assert "micro-batch 8" in shown
    assert "fits: " in shown


@pytest.mark.slow
def test_a_step_that_does_not_fit_has_status_1_and_remedies(target, capsys):
    assert main(["memory", f"{target}:make_large", "--ipu", "gc2"]) == 1

    assert "what helps" in capsys.readouterr().out


def test_stages_and_recomputation_are_taken_from_the_line(target, capsys):
    line = [
        "memory",
        f"{target}:make",
        "--stages",
        "2=1",
        "--accumulation",
        "3",
        "--recompute",
        "0",
        "--format",
        "json",
    ]

    assert main(line) == 0

    report = json.loads(capsys.readouterr().out)
    assert [memory["stages"] for memory in report["ipus"]] == [[0], [1]]


def test_inference_needs_no_label(target, capsys):
    assert main(["memory", f"{target}:make", "--mode", "inference"]) == 0

    assert "optimizer state" not in capsys.readouterr().out


@pytest.mark.parametrize("stages", ["2=x", "2", "2=2"])
def test_stages_that_are_none_are_a_finding(target, capsys, stages):
    assert main(["memory", f"{target}:make", "--stages", stages]) == 1

    assert "error[P002]" in capsys.readouterr().err
