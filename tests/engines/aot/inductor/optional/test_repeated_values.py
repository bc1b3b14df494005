"""What a larger tensor repeats has memory of its own in compiled programs."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.inductor.optional.repeated_values import is_repeated
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.programs import Program


def _scale(images, variance):
    scale = (variance + 1e-5).rsqrt()
    return images * scale[:, None, None], images * variance[:, None, None], scale * 2


def _find_repeated(function, *shapes):
    graph = make_fx(function, tracing_mode="fake")(*(torch.ones(shape) for shape in shapes)).graph
    return [node.name for node in graph.nodes if is_repeated(node)]


def test_values_that_are_computed_and_then_repeated_are_found():
    assert _find_repeated(_scale, (2, 8, 6, 6), (8,)) == ["rsqrt"]


@pytest.mark.parametrize("shapes", [((2, 8, 1, 1), (8,)), ((8, 3, 3), (8,))])
def test_a_value_that_is_repeated_seldom_stays_in_its_loop(shapes):
    assert _find_repeated(_scale, *shapes) == []


def test_constants_and_integers_are_no_repeated_values():
    def choose(images, index):
        shifted = index + 1
        return torch.where(images > 0, images, torch.full((), 0.5)), images * shifted[:, None, None]

    assert _find_repeated(lambda images, scale: choose(images, scale.to(torch.int64)), (2, 8, 6, 6), (8,)) == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_a_compiled_program_computes_the_same(compile_into, tmp_path):
    arguments = [torch.randn(2, 8, 20, 20).contiguous(memory_format=torch.channels_last), torch.rand(8)]
    module = make_fx(_scale, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(value, name=f"argument_{index}") for index, value in enumerate(arguments))

    found = compile_into(Program("step", module, specs, num_results=3), tmp_path)(arguments)

    for value, wanted in zip(found, _scale(*arguments)):
        torch.testing.assert_close(value, wanted)
