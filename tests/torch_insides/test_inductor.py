"""A part of Inductor that is gone costs one change, or the engine where a program could be wrong without it."""

from __future__ import annotations

import json
import re
from importlib import reload
from pathlib import Path

import pytest
import torch

from porting.engines.aot.compile_process import compile_in_child
from porting.engines.aot.library import LEFT_OUT, RUNNER, load_library
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.compiled.program_file import write_program
from porting.engines.contract.failures import CompileFailure
from porting.torch_insides import inductor, parts
from porting.torch_insides.parts import MissingPart, Parts
from tests.engines.compiled_step import results_and_state, step_program

HIDING = "tests.torch_insides.hiding"
REQUIRED = {"AOT_COMPILE", "GUARDS", "RENAMES"}
# one part of each change that is made where a program is compiled
ONE_OF_EACH = [
    [
        "torch._inductor.codegen.cpp:CppKernel._acc_helper_init",
        "torch._inductor.graph:GraphLowering.run_node",
        "torch._inductor.lowering:fallback_handler",
        "torch._inductor.mkldnn_ir:_create_output_node",
    ],
    ["torch._inductor.cpp_builder:CppTorchDeviceOptions", "torch._inductor.cpu_vec_isa:VecISA.check_build"],
]


@pytest.fixture
def found():
    """List what `inductor` looks for, as pairs of the name of a `Parts` and a place."""
    groups = {id(value): name for name, value in vars(inductor).items() if isinstance(value, Parts)}
    return [(groups[id(group)], place) for group in map(vars(inductor).get, groups.values()) for place in group.places]


@pytest.fixture
def hide(monkeypatch):
    """Give a function that loads `inductor` again without one part; it is as it was afterwards."""
    look_up = parts.look_up

    def load_without(hidden):
        def look_up_others(place):
            if place == hidden:
                raise AttributeError(place)
            return look_up(place)

        monkeypatch.setattr(parts, "look_up", look_up_others)
        return reload(inductor)

    before = dict(vars(inductor))
    yield load_without
    vars(inductor).update(before)


def test_nothing_is_missing_here(found):
    assert len(found) > 40
    assert not [name for name, _place in found if getattr(inductor, name).probe()]


def test_each_part_that_is_gone_is_named_by_the_change_that_needs_it(found, hide):
    for name, place in found:
        loaded = hide(place)

        with pytest.raises(MissingPart, match=re.escape(f"`{parts.write_place(place)}`")):
            getattr(loaded, name).require()


def test_the_engine_is_refused_where_a_required_part_is_gone(found, hide):
    required = {place for name, place in found if name in REQUIRED}

    assert {place for _name, place in found if hide(place).probe_required()} == required


def test_a_setting_that_is_gone_is_left_out(hide):
    loaded = hide("torch._inductor.config:size_asserts")

    assert loaded.choose_settings({"size_asserts": False, "epilogue_fusion": False}, required={}) == {
        "epilogue_fusion": False
    }


def test_a_setting_that_is_required_is_an_error(hide):
    loaded = hide("torch._inductor.config:fallback_random")

    with pytest.raises(MissingPart, match="fallback_random"):
        loaded.choose_settings({}, required={"fallback_random": True})


# -- where programs are compiled


@pytest.fixture
def compile_without(tmp_path, monkeypatch):
    """Give a function that compiles a step by a torch that lacks some parts, and returns the folder."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    # without the change torch would try the compiler with each width of vectors, which takes longer than all the rest
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")

    def compile_step(*places):
        monkeypatch.setenv("HIDDEN_PARTS", " ".join(places))
        write_program(step_program(), tmp_path / "step.program")
        compile_in_child(
            tmp_path / "step.program",
            tmp_path / "step",
            settings=CompileSettings(),
            compiler="tests.torch_insides.hiding",
        )
        return tmp_path / "step"

    return compile_step


@pytest.mark.slow
@pytest.mark.parametrize("places", ONE_OF_EACH, ids=["code", "compiler"])
def test_a_step_is_compiled_without_some_changes_and_computes_the_same(compile_without, places):
    module = step_program().module

    folder = compile_without(*places)

    left_out = json.loads((folder / RUNNER).read_text())[LEFT_OUT]
    assert [place for place in places if not any(place.replace(":", ".") in loss for loss in left_out)] == []
    expected = results_and_state(lambda arguments: module(*arguments))
    torch.testing.assert_close(results_and_state(load_library(folder)), expected)


@pytest.mark.slow
def test_without_a_required_part_nothing_is_compiled(compile_without):
    place = "torch._inductor.codegen.cpp:CppKernel.check_bounds"

    with pytest.raises(CompileFailure, match="CppKernel.check_bounds`: no step can be compiled") as failed:
        compile_without(place)

    assert failed.value.kind == "torch"
