"""Steps to dump: one of a single layer, and one with convolutions, statistics and random numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.exports import capture, load_step


@pytest.fixture
def step(step_file):
    return load_step(step_file)


@pytest.fixture
def linear():
    """Give the step of a single layer, of which everything can be counted by hand."""
    return capture(nn.Linear(4, 2), nn.MSELoss(), (torch.ones(8, 4), torch.ones(8, 2)), target="a.py:make")
