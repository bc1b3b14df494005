"""Small models to export, and the steps that come of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions
from porting.exports import export


class Net(nn.Module):
    """Convolution, BatchNorm, dropout, views and a constant."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.head = nn.Linear(64, 3)

    def forward(self, x):
        x = self.body(x).flatten(1)
        return self.head(x * torch.tensor(0.5))


@pytest.fixture
def parts():
    """Give a model, its loss, a batch of 8 and an optimizer."""
    torch.manual_seed(0)
    model = Net()
    batch = torch.randn(8, 1, 6, 6), torch.arange(8) % 3
    return model, nn.CrossEntropyLoss(), batch, torch.optim.AdamW(model.parameters(), lr=0.01)


@pytest.fixture
def step_file(tmp_path, parts):
    """Give the path of an exported step: batch 4, accumulation 2."""
    model, loss, batch, optimizer = parts
    options = PortOptions(micro_batch=4, accumulation=2)
    export(model, loss, batch, tmp_path / "model.step", optimizer=optimizer, options=options)
    return tmp_path / "model.step"
