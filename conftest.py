"""What holds for every test, those in docstrings and pages included: one random state, no settings from outside."""

from __future__ import annotations

import gc
import os
from typing import Iterator, List

import pytest
import torch

# Small tensors gain nothing from threads, and where other programs run threads that wait for each other lose a lot.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector leave the tests themselves alone.

    There are thousands, which live to the end: looking through them took a second each time that a test collects.
    """
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


# examples that start processes of torch; a docstring cannot say so itself
_SLOW_EXAMPLES = ("porting.bench.measure.bench", "benchmarks.md")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Mark slow examples, before pytest leaves out what is marked."""
    for item in items:
        if item.name in _SLOW_EXAMPLES:
            item.add_marker(pytest.mark.slow)


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
