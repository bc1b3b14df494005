"""What holds for every test, those in docstrings and pages included: one random state, no settings from outside."""

from __future__ import annotations

import os
from typing import Iterator

import pytest
import torch

# Small tensors gain nothing from threads, and where other programs run threads that wait for each other lose a lot.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Seed torch, ask for the simulator, and leave nothing behind in the generator.

    No test becomes another program: the status of all tests would be that program's.
    """
    monkeypatch.setenv("PORTING_DEVICE", "sim")
    monkeypatch.setattr(os, "execve", _refuse_to_become)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _refuse_to_become(path: object, *_arguments: object) -> None:
    raise AssertionError(f"a test is about to become `{path}`")
