"""Fixtures of the hardware path: an empty stand-in for the device, and its books.

No conftest above this one is read where these tests run, by `make hardware-path`. In the ordinary tests, which have no
PopTorch, they are skipped.
"""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any, Iterator, List, NoReturn, Optional

import pytest
import torch

from tests.hardware.fresh_process import FreshProcesses

# tests for any torch, and of the tools
RUN_ANYWHERE = ["test_environment.py", "test_torch_names.py"]
HAS_POPTORCH = importlib.util.find_spec("poptorch") is not None

collect_ignore = RUN_ANYWHERE if HAS_POPTORCH else []

torch.set_num_threads(1)


class _NeedsPopTorch(pytest.Module):
    def collect(self) -> NoReturn:
        raise pytest.skip.Exception("needs PopTorch's front end: `make hardware-path`", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> Optional[pytest.Module]:
    """Skip a file as a whole where PopTorch is not installed."""
    if HAS_POPTORCH or module_path.name in RUN_ANYWHERE:
        return None
    return _NeedsPopTorch.from_parent(parent, path=module_path)


@pytest.fixture(autouse=True)
def on_the_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask for the IPU, seed torch, and give the IPUs back that a test has left attached."""
    if not HAS_POPTORCH:
        yield
        return
    monkeypatch.setenv("PORTING_DEVICE", "ipu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    _stand_in()._attached.clear()


@pytest.fixture
def stand_in() -> Any:
    """Give the stand-in for PopTorch's compiled core, or skip the test where PopTorch has its own."""
    core = _stand_in()
    if not hasattr(core, "CALLS"):
        pytest.skip("PopTorch's own core keeps no books")
    return core


def _stand_in() -> Any:
    import poptorch.poptorch_core

    return poptorch.poptorch_core


@pytest.fixture
def one_ipu(stand_in: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend to be a machine with a single IPU."""
    monkeypatch.setattr(stand_in, "NUM_IPUS", 1)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: List[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def vendor_warnings() -> Iterator[List[str]]:
    """Collect what PopTorch warns of in its log."""
    vendor, handler = logging.getLogger("poptorch::python"), _Lines()
    level = vendor.level
    vendor.setLevel(logging.WARNING)
    vendor.addHandler(handler)
    yield handler.lines
    vendor.removeHandler(handler)
    vendor.setLevel(level)


@pytest.fixture(scope="session")
def fresh() -> Iterator[FreshProcesses]:
    """Give processes that have loaded torch and nothing of this package."""
    with FreshProcesses() as processes:
        yield processes
