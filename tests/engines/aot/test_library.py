"""A program compiled ahead of time computes what its graph computes, wherever it is loaded; faults are exceptions."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from porting.engines.aot.library import (
    LIBRARY,
    OPERATORS,
    RUNNER,
    LibraryLoadError,
    LoadedLibrary,
    load_library,
)
from porting.engines.compiled.call_layout import TensorSpec
from tests.engines.compiled_step import results_and_state, step_program

REPOSITORY = Path(__file__).parents[3]


# -- compiled


@pytest.mark.slow
def test_a_compiled_program_computes_what_its_graph_computes(folder):
    module = step_program().module

    found = results_and_state(load_library(folder))

    expected = results_and_state(lambda arguments: module(*arguments))
    torch.testing.assert_close(found, expected)


@pytest.mark.slow
def test_its_random_numbers_are_those_of_torchs_generator(folder):
    run, module = load_library(folder), step_program().module

    results_and_state(run)

    after = torch.random.get_rng_state()
    results_and_state(lambda arguments: module(*arguments))
    assert torch.equal(after, torch.random.get_rng_state())


@pytest.mark.slow
def test_the_folder_holds_only_what_loading_needs(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted([LIBRARY, OPERATORS, RUNNER])
    assert sorted(path.name for path in folder.parent.iterdir()) == ["step", "step.program"]


@pytest.mark.slow
def test_a_folder_that_was_moved_loads_without_inductor_and_without_a_compiler(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "a name with blanks")
    program = """
import sys
from pathlib import Path
from porting.engines.aot.library import load_library
from tests.engines.compiled_step import step_arguments
run = load_library(Path(sys.argv[1]))
assert not [name for name in sys.modules if name.startswith(("torch._inductor", "torch._dynamo", "triton"))]
print(float(run(step_arguments())[0]) > 0)
"""
    environment = {**os.environ, "PATH": ""}

    finished = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a name with blanks")],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (finished.stdout, finished.stderr) == ("True\n", "")


@pytest.mark.slow
def test_tensors_need_no_alignment(folder):
    run = load_library(folder)

    def run_unaligned(arguments):
        shifted = [torch.empty(value.numel() + 1, dtype=value.dtype)[1:].view(value.shape) for value in arguments]
        for view, value in zip(shifted, arguments):
            view.copy_(value)
        results = run(shifted)
        for view, value in zip(shifted, arguments):
            value.copy_(view)
        return results

    torch.testing.assert_close(results_and_state(run_unaligned), results_and_state(run))


@pytest.mark.slow
def test_another_number_of_threads_than_it_was_compiled_for_does_no_harm(folder):
    run, num_threads = load_library(folder), torch.get_num_threads()
    expected = results_and_state(run)
    try:
        torch.set_num_threads(4)
        found = results_and_state(run)
    finally:
        torch.set_num_threads(num_threads)

    torch.testing.assert_close(found, expected)


# -- loaded


def test_tensors_of_another_shape_are_refused_by_name():
    run = LoadedLibrary(list, [TensorSpec("input:0:", (2, 3), (3, 1), torch.float32)])

    with pytest.raises(TypeError, match=r"as `input:0:` and got a tensor of shape \[3, 3\]"):
        run([torch.zeros(3, 3)])


@pytest.mark.parametrize(
    "other",
    [torch.zeros(3, 2).t(), torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, device="meta")],
    ids=["strides", "dtype", "device"],
)
def test_tensors_of_another_kind_are_refused(other):
    run = LoadedLibrary(list, [TensorSpec("input:0:", (2, 3), (3, 1), torch.float32)])

    with pytest.raises(TypeError, match="was compiled for"):
        run([other])


def test_another_number_of_tensors_is_refused():
    run = LoadedLibrary(list, [TensorSpec("input:0:", (2,), (1,), torch.float32)])

    with pytest.raises(TypeError, match="takes 1 tensors and got 0"):
        run([])


def test_other_errors_of_a_run_come_through():
    def fail(_tensors):
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        LoadedLibrary(fail, [])([])


def facts(**changed):
    values = {"torch": torch.__version__, "arguments": [], "num_results": 0, **changed}
    return json.dumps(values)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "`runner.json` is missing or damaged"),
        ("[]", "`runner.json` is missing or damaged"),
        (facts(arguments=3), "`runner.json` is damaged"),
        (facts(torch="1.0"), "it is for torch 1.0, this is"),
        (facts(), "`program.so` is missing"),
    ],
)
def test_a_folder_without_a_program_is_an_error_with_a_reason(tmp_path, content, reason):
    (tmp_path / RUNNER).write_text(content)

    with pytest.raises(LibraryLoadError, match=reason):
        load_library(tmp_path)


def test_a_library_that_is_none_is_an_error_with_a_reason(tmp_path):
    (tmp_path / RUNNER).write_text(facts())
    (tmp_path / LIBRARY).write_bytes(b"no library")

    with pytest.raises(LibraryLoadError, match="`program.so` cannot be loaded"):
        load_library(tmp_path)
