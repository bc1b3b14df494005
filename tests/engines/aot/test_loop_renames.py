"""A mask that is drawn into a buffer is read after it was drawn, whichever loops are joined around it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from porting.bench.processes import make_environment
from porting.engines.aot.library import load_program
from porting.engines.compiled.program_file import write_program
from tests.engines.compiled_step import results_and_state, step_program

# the libraries that multiply decide in which order loops are joined
_COMPILE = """
import sys
from pathlib import Path
from porting.engines.aot import compiler, matmul_kernels
from porting.engines.compiled.compile_settings import CompileSettings

choices = iter(sys.argv[1])
matmul_kernels.is_faster_by_onednn = lambda product: next(choices) == "1"
Path("out").mkdir()
compiler.compile_here(Path("step.program"), Path("out"), settings=CompileSettings(num_threads=2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("choices", ["000", "010", "110"])
def test_every_choice_of_libraries_computes_the_step(tmp_path, choices):
    program = step_program()
    write_program(program, tmp_path / "step.program")

    subprocess.run([sys.executable, "-c", _COMPILE, choices], cwd=tmp_path, env=make_environment(), check=True)

    found = results_and_state(load_program(tmp_path / "out"))
    expected = results_and_state(lambda arguments: program.module(*arguments))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
