"""A step that is compiled once for all tests of what a compiler has made."""

from __future__ import annotations

import pytest

from porting.engines.aot.compile_process import compile_in_child
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.compiled.program_file import write_program
from tests.engines.compiled_step import step_program


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Compile the step for two threads."""
    place = tmp_path_factory.mktemp("aot")
    write_program(step_program(), place / "step.program")
    compile_in_child(place / "step.program", place / "step", settings=CompileSettings(num_threads=2))
    return place / "step"
