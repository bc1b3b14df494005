"""What the simulator's tests share: both log channels at debug level, and models that train in a few lines."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from porting.simulator import _dataloader

# programs that tests start: they import `poptorch`, which is not there while docstrings are collected
collect_ignore_glob = ["programs/*.py"]


class Regression(nn.Module):
    """A linear layer and its mean squared error: `forward` returns output and loss."""

    def __init__(self, num_inputs=3, num_outputs=2):
        super().__init__()
        self.linear = nn.Linear(num_inputs, num_outputs)

    def forward(self, x, target):
        output = self.linear(x)
        return output, nn.functional.mse_loss(output, target)


@pytest.fixture
def regression():
    """Give a `Regression` with fixed weights."""
    torch.manual_seed(0)
    return Regression()


@pytest.fixture
def batch():
    """Give twelve samples for a `Regression`."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(12, 3, generator=generator), torch.randn(12, 2, generator=generator)


@pytest.fixture
def debug_log(poptorch, capsys):
    """Give a function that returns what both log channels said since it was last asked, at debug level."""
    poptorch.setLogLevel("DEBUG")
    yield lambda: capsys.readouterr().err
    poptorch.setLogLevel("WARN")


@pytest.fixture
def two_cores(monkeypatch):
    """Let the machine have two cores, and forget what was said about it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: {0, 1}, raising=False)
    _dataloader._cap_num_workers.cache_clear()
