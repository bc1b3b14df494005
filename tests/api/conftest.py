"""A small model with its batches, and the same training loop twice: plain and ported."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

Batch = Tuple[torch.Tensor, torch.Tensor]


def make_model(seed: int = 0) -> nn.Sequential:
    """Make a classifier of 4 features into 3 classes; the same for the same seed.

    A bias before BatchNorm would have rounding noise for its gradient, which Adam blows up.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def make_batches(num_batches: int = 20, rows: int = 6) -> List[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(rows, 4, generator=generator), torch.randint(3, (rows,), generator=generator))
        for _ in range(num_batches)
    ]


def train_plainly(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: List[Batch],
    after_step: Callable[[float], Any] = lambda loss: None,
) -> List[float]:
    """Run the loop that everybody writes, with cross entropy, and return the losses."""
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after_step(losses[-1])
    return losses


def train_ported(
    ported: Any, batches: List[Batch], after_step: Callable[[float], Any] = lambda loss: None
) -> List[float]:
    """Run the same loop with a ported model and return the losses."""
    losses = []
    for x, y in batches:
        _, loss = ported(x, y)
        losses.append(loss.mean().item())
        after_step(losses[-1])
    return losses


@pytest.fixture(name="make_model")
def _make_model() -> Callable[..., nn.Sequential]:
    return make_model


@pytest.fixture(name="batches")
def _batches() -> List[Batch]:
    return make_batches()


@pytest.fixture(name="train_plainly")
def _train_plainly() -> Callable[..., List[float]]:
    return train_plainly


@pytest.fixture(name="train_ported")
def _train_ported() -> Callable[..., List[float]]:
    return train_ported


@pytest.fixture
def same() -> Callable[[Any, Any], None]:
    """Compare losses or weights of two runs of the same arithmetic."""
    return lambda actual, expected: torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
