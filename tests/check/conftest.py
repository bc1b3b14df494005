"""Findings made by hand, in a small program that lies in the present folder."""

from __future__ import annotations

import linecache

import pytest

from porting.diagnostics import Finding, Place, Severity

PROGRAM = """\
import torch

model = torch.nn.Linear(4, 3)
criterion = torch.nn.CrossEntropyLoss()
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    print(loss.item())
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Work in a folder with the program `train.py`, and return its name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    return "train.py"


@pytest.fixture
def findings(program):
    """Three findings of the program: of a note, an error and one without a place."""
    # another test's file of this name may have been a pipe, which is not read again
    linecache.clearcache()
    return [
        Finding("C001", place=Place(program, 8, 11, 8, 22), severity=Severity.NOTE, help="read it after the call"),
        Finding("L002", place=Place(program, 6, 12, 6, 34), label="a tensor of 8", help="reduce it: `loss.mean()`"),
        Finding("B006", "4 samples are dropped", notes="of 100"),
    ]
