"""The programs of the engine `inductor` compute what their graphs compute; on a GPU they are not tested here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from porting.engines.compile_settings import CompileFailure, CompileSettings
from porting.engines.inductor import compile_program
from porting.engines.program_file import write_program
from tests.engines.compiled_step import step_arguments, step_program

REPOSITORY = Path(__file__).parents[2]

LOAD = """
import sys
from pathlib import Path
import torch
from porting.engines.inductor import load_program
from tests.engines.compiled_step import NUM_TOKENS, step_arguments
run, arguments = load_program(Path(sys.argv[1])), step_arguments()
torch.manual_seed(7)
torch.save([*run(arguments), *arguments], sys.argv[2])
arguments[2][100] = NUM_TOKENS
try:
    run(arguments)
except IndexError:
    print("IndexError")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Compile the step, once for all tests."""
    place = tmp_path_factory.mktemp("inductor")
    write_program(step_program(), place / "step.program")
    compile_program(place / "step.program", place / "step", settings=CompileSettings(num_threads=2))
    return place / "step"


@pytest.fixture
def compiler_calls(tmp_path, monkeypatch):
    """Put a compiler before the real one that writes down how it is called, and give the file."""
    calls, place = tmp_path / "calls", tmp_path / "bin"
    place.mkdir()
    name = "g++"
    (place / name).write_text(f'#!/bin/sh\necho "$@" >> {calls}\nexec {shutil.which(name)} "$@"\n')
    (place / name).chmod(0o755)
    calls.touch()
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    return calls


@pytest.mark.slow
def test_a_program_is_loaded_in_another_process_and_nothing_is_compiled(folder, tmp_path, compiler_calls):
    before = sorted(folder.rglob("*"))

    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOAD, str(folder), str(tmp_path / "results")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )

    assert finished.stdout == "IndexError\n", finished.stderr
    module, arguments = step_program().module, step_arguments()
    torch.manual_seed(7)
    expected = [*module(*arguments), *arguments]
    torch.testing.assert_close(torch.load(tmp_path / "results"), expected)
    assert sorted(folder.rglob("*")) == before
    assert " -o " not in compiler_calls.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_machine_without_a_gpu_says_so(tmp_path):
    with pytest.raises(CompileFailure, match="there is no CUDA device"):
        compile_program(tmp_path / "step.program", tmp_path / "step", settings=CompileSettings(device="cuda"))
