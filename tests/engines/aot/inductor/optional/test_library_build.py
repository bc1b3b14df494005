"""Programs have a runtime of their own where torch's is the known one; their kernels are compiled in parts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch._inductor import config

from porting.engines.aot.inductor.optional import library_build
from porting.engines.aot.inductor.optional.library_build import choose_level_of_calls, split_kernels, write_calls

RUNTIME = Path(torch.__file__).parent / "_inductor" / "codegen" / "aoti_runtime" / "interface.cpp"
HEADER = "#include <torch/csrc/inductor/aoti_include/cpu.h>\n"
KERNELS = "void kernel() {}"
CALLS = "void run() { kernel(); }"


@pytest.fixture(scope="module")
def wrapper():
    if not RUNTIME.exists():
        pytest.skip("this torch keeps its runtime elsewhere")
    return f"{HEADER}{RUNTIME.read_text(encoding='utf-8')}\n{CALLS}\n"


def test_the_runtime_comes_before_what_calls_the_kernels(wrapper):
    source = write_calls(wrapper)

    assert source.index("class AOTInductorModel ") < source.index(CALLS)
    assert "model_container.h" not in source


def test_torch_finds_every_function_of_its_runtime_once(wrapper):
    source = write_calls(wrapper)

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

    assert write_calls(wrapper.replace(before, after)) is None


@pytest.mark.parametrize("num_sources", [1, 2, 3, 20])
def test_kernels_are_split_where_one_begins(num_sources):
    kernels = [f"#include <torch/csrc/inductor/cpp_prefix.h>\nvoid kernel_{i}() {{ {'f(); ' * i}}}\n" for i in range(9)]
    text = "// a comment\n" + "".join(kernels)

    sources = split_kernels(text, num_sources)

    assert "".join(sources) == text
    # at most one for each kernel, and one for what comes before
    assert len(sources) == min(num_sources, len(kernels) + 1)
    for kernel in kernels:
        assert sum(kernel in source for source in sources) == 1
    if num_sources == 3:
        assert max(map(len, sources)) < len(text) / 2


def test_all_parts_are_compiled_with_inductors_settings(wrapper, tmp_path, monkeypatch):
    commands = []
    monkeypatch.setattr(library_build, "_run_command", commands.append)
    library = tmp_path / "program.so"
    settings = {"aot_inductor.enable_frame_pointer": True, "aot_inductor.output_path": str(library)}
    settings["cpp.vec_isa_ok"] = True

    with config.patch(settings):  # in this thread; there is nothing to load
        assert library_build._build_library(wrapper, KERNELS, None, "-O1") is None

    assert len(commands) == 3
    assert all("-fno-omit-frame-pointer" in command for command in commands[:2])
    assert commands[0][-1] == "-O1"
    assert commands[2][1:3] == [str(tmp_path / "program.0.o"), str(tmp_path / "program.1.o")]


@pytest.mark.parametrize(("shape", "number", "level"), [((4,), 9, ""), ((512, 512), 9, "-O1"), ((4,), 1000, "-O0")])
def test_calls_are_optimized_where_that_shows(shape, number, level):
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(number):
        node = graph.call_function(torch.ops.aten.neg.default, (node,))
        node.meta["val"] = torch.empty(shape, device="meta")

    assert choose_level_of_calls(graph) == level


@pytest.mark.slow
def test_programs_are_built_in_this_way(folder):
    library = (folder / "program.so").read_bytes()

    assert b"a wrong number of tensors for this program" in library
    assert b"AOTInductorModelContainerGetConstantName" in library
