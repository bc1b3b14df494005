"""Fixtures for all tests: the two worlds of PopTorch, the data beside the repository, and Hypothesis' settings."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import List

import hypothesis
import pytest

DATA_FOLDER = Path(__file__).parents[2] / "shared" / "data"

# the first call of a model compiles it, which takes longer than Hypothesis allows an example
hypothesis.settings.register_profile("porting", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("porting")


def _worlds() -> List[object]:
    simulated = pytest.param("porting.simulator", id="simulator")
    if importlib.util.find_spec("poptorch") is None:
        return [simulated]
    return [simulated, pytest.param("poptorch", id="poptorch", marks=pytest.mark.hardware)]


@pytest.fixture(params=_worlds(), scope="session")
def poptorch(request: pytest.FixtureRequest) -> ModuleType:
    """Give a module with PopTorch's API: the simulator, and the real one as well where it is installed."""
    return importlib.import_module(request.param)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Give the folder with real data beside the repository, or skip the test where it is absent."""
    if not DATA_FOLDER.is_dir():
        pytest.skip(f"no real data: {DATA_FOLDER} does not exist")
    return DATA_FOLDER
