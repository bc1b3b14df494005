"""The loops, compiled once for all tests."""

from __future__ import annotations

import shutil

import pytest

from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.recurrence.compiler import LIBRARY, SOURCE, compile_here
from porting.engines.recurrence.kernels import Kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory):
    """Compile and load the loops."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("loops")
    compile_here(SOURCE, folder, settings=CompileSettings())
    return Kernels(folder / LIBRARY)
