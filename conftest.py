"""What holds for every test, those in docstrings and pages included: one random state, no settings from outside."""

from __future__ import annotations

from typing import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def same_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seed torch, ask for the simulator, and leave nothing behind in the generator."""
    monkeypatch.setenv("PORTING_DEVICE", "sim")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
