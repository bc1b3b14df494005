"""A program is one C++ source where torch's runtime is the known one, and torch's own build where it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from porting.engines.aot.single_source import join_sources

RUNTIME = Path(torch.__file__).parent / "_inductor" / "codegen" / "aoti_runtime" / "interface.cpp"
HEADER = "#include <torch/csrc/inductor/aoti_include/cpu.h>\n"
KERNELS = "void kernel() {}"
CALLS = "void run() { kernel(); }"


@pytest.fixture(scope="module")
def wrapper():
    if not RUNTIME.exists():
        pytest.skip("this torch keeps its runtime elsewhere")
    return f"{HEADER}{RUNTIME.read_text(encoding='utf-8')}\n{CALLS}\n"


def test_kernels_come_first_then_the_runtime_then_what_calls_them(wrapper):
    source = join_sources(wrapper, KERNELS)

    assert source.index(KERNELS) < source.index("class AOTInductorModel ") < source.index(CALLS)
    assert "model_container.h" not in source
    assert "#pragma GCC optimize" not in source


def test_torch_finds_every_function_of_its_runtime_once(wrapper):
    source = join_sources(wrapper, KERNELS)

    wanted = set(re.findall(r"AOTIRuntimeError (AOTInductor\w+)\(", wrapper))
    assert sorted(re.findall(r"PORTING_EXPORT (\w+)\(", source)) == sorted(
        wanted | {"AOTInductorModelContainerGetNumInputs", "AOTInductorGetLastError"}
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    size_t num_models,", "    int num_models,"),
        ("AOTInductorModelContainerGetCallSpec(", "AOTInductorModelContainerGetSpec("),
        (HEADER, "#include <torch/csrc/inductor/aoti_include/xpu.h>\n"),
        ('\n} // extern "C"\n', "\n}\n"),
    ],
)
def test_another_runtime_is_left_to_torch(wrapper, before, after):
    assert before in wrapper

    assert join_sources(wrapper.replace(before, after), KERNELS) is None


@pytest.mark.slow
def test_programs_are_built_in_this_way(folder):
    library = (folder / "program.so").read_bytes()

    assert b"a wrong number of tensors for this program" in library
    assert b"AOTInductorModelContainerGetConstantName" in library
