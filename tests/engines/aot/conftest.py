"""How programs are compiled for tests of what a compiler makes, and a step that is compiled once for all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from porting.engines.aot.compile_process import compile_in_child
from porting.engines.aot.library import load_library
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.compiled.program_file import write_program
from tests.engines.compiled_step import step_program


@pytest.fixture(scope="session")
def compile_into(compiler_server):
    """Give a function that compiles a program into a folder, for so many threads, and loads it."""

    def compile_program(program, folder, *, num_threads=1):
        write_program(program, folder / "step.program")
        compiling = str(Path(__file__).with_name("compiling.py"))
        code, said = compiler_server.run(compiling, str(folder), str(num_threads))
        assert code == 0, said
        return load_library(folder / "out")

    return compile_program


@pytest.fixture(scope="session")
def folder(tmp_path_factory, compiler_server):
    """Compile the step for two threads, in a process that is started for it."""
    place = tmp_path_factory.mktemp("aot")
    write_program(step_program(), place / "step.program")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", compiler_server.python)
        compile_in_child(place / "step.program", place / "step", settings=CompileSettings(num_threads=2))
    return place / "step"
