"""A mask that is drawn into a buffer is read after it was drawn, whichever loops are joined around it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from porting.engines.aot.library import load_library
from porting.engines.compiled.program_file import write_program
from porting.support.bound_process import make_environment
from tests.engines.compiled_step import results_and_state, step_program

# the libraries that multiply decide in which order loops are joined
_COMPILE = """
import sys
from pathlib import Path
from porting.engines.aot import compiler
from porting.engines.aot.inductor.optional import matmul_kernels
from porting.engines.compiled.compile_settings import CompileSettings

for folder in map(Path, sys.argv[1:]):
    choices = iter(folder.name)
    matmul_kernels.is_faster_by_onednn = lambda product: next(choices) == "1"
    (folder / "out").mkdir(parents=True)
    compiler.compile_here(Path("step.program"), folder / "out", settings=CompileSettings(num_threads=2))
"""
_CHOICES = ["000", "010", "110"]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile the step with each choice in one process, whose imports take longer; give the folder."""
    folder = tmp_path_factory.mktemp("choices")
    write_program(step_program(), folder / "step.program")
    subprocess.run([sys.executable, "-c", _COMPILE, *_CHOICES], cwd=folder, env=make_environment(), check=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("choices", _CHOICES)
def test_every_choice_of_libraries_computes_the_step(compiled, choices):
    program = step_program()

    found = results_and_state(load_library(compiled / choices / "out"))

    expected = results_and_state(lambda arguments: program.module(*arguments))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
