"""What is not wanted is left out of a program, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.bench.processes import make_environment
from porting.engines.aot.inductor.unwanted import OPTIONAL_CHANGES, is_wanted, require_known_changes
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.program_file import write_program
from porting.engines.compiled.programs import Program
from porting.executables.machine import collect_compiler_settings

_COMPILE = """
from pathlib import Path
from porting.engines.aot import compiler
from porting.engines.compiled.compile_settings import CompileSettings

Path("out").mkdir()
compiler.compile_here(Path("sum.program"), Path("out"), settings=CompileSettings())
"""


@pytest.mark.parametrize("change", OPTIONAL_CHANGES)
def test_each_change_is_left_out_by_itself(monkeypatch, change):
    monkeypatch.setenv("PORTING_LEAVE_OUT", change)

    assert [name for name in OPTIONAL_CHANGES if not is_wanted(name)] == [change]


def test_a_change_that_there_is_not_is_refused(monkeypatch):
    monkeypatch.setenv("PORTING_LEAVE_OUT", "short_sums,long_sums")

    with pytest.raises(ValueError, match="names long_sums, and there are convolution_kernels, "):
        require_known_changes()


def test_a_program_without_a_change_is_another_executable(monkeypatch):
    monkeypatch.setenv("PORTING_LEAVE_OUT", "short_sums")

    assert collect_compiler_settings()["PORTING_LEAVE_OUT"] == "short_sums"


@pytest.mark.slow
@pytest.mark.parametrize(("unwanted", "chunk"), [("", ", 128>"), ("short_sums", "")])
def test_a_program_has_the_changes_that_are_wanted(tmp_path, unwanted, chunk):
    x = torch.randn(8, 4096)
    module = make_fx(lambda x: (x.sum(1),), tracing_mode="fake")(x)
    write_program(
        Program("step", module, (TensorSpec.of(x, name="input:0:"),), num_results=1), tmp_path / "sum.program"
    )

    environment = {**make_environment(), "PORTING_LEAVE_OUT": unwanted}
    subprocess.run([sys.executable, "-c", _COMPILE], cwd=tmp_path, env=environment, check=True)

    written = "".join(file.read_text() for file in (tmp_path / "build").rglob("*.cpp"))
    assert ("CascadeSumHelper<" in written and ", 128>" in written) is bool(chunk)
