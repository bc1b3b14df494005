"""A folder with a small target, and the step that is exported from it."""

from __future__ import annotations

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


@pytest.fixture
def target_folder(tmp_path, monkeypatch):
    """Work in a folder with a target; nothing of it stays loaded."""
    (tmp_path / "exported_of_test.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.endswith("_of_test") or name.startswith("_porting_target"):
            del sys.modules[name]


@pytest.fixture
def exported_step(target_folder, capsys):
    """Export the target and give the file's name."""
    assert main(["export", "exported_of_test.py:make", "--batch", "4", "-o", "model.step"]) == 0
    capsys.readouterr()
    return "model.step"
