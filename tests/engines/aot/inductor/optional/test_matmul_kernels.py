"""Products of matrices go to the faster library, and only where that is worth it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.inductor.optional.matmul_kernels import (
    choose_matmul_kernels,
    collect_products,
    is_faster_by_onednn,
)
from porting.engines.aot.library import load_library
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.program_file import write_program
from porting.engines.compiled.programs import Program
from porting.support.bound_process import make_environment

_LARGE = 256


def _traced(function: Callable[..., Any], *arguments: torch.Tensor) -> torch.fx.GraphModule:
    return make_fx(function, tracing_mode="fake")(*arguments)


def _layer(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.addmm(bias, x, weight.t())


def _factors(size: int = _LARGE) -> Any:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in ((size, size), (size + 3, size), (size + 3,))]


def test_a_layer_by_onednn_gives_the_same_product():
    factors = _factors()
    module = _traced(_layer, *factors)

    choose_matmul_kernels(module.graph, is_faster=lambda product: True)
    module.recompile()

    assert "mkldnn" in module.code
    torch.testing.assert_close(module(*factors), _layer(*factors), rtol=1e-5, atol=1e-4)


def test_transposed_factors_give_the_same_product():
    left, right = torch.randn(_LARGE, _LARGE + 1), torch.randn(_LARGE, _LARGE + 2)
    module = _traced(lambda a, b: torch.mm(a.t(), b), left, right)

    choose_matmul_kernels(module.graph, is_faster=lambda product: True)
    module.recompile()

    torch.testing.assert_close(module(left, right), left.t() @ right, rtol=1e-5, atol=1e-4)


def test_a_product_that_is_not_faster_stays():
    module = _traced(_layer, *_factors())
    before = module.code

    chosen = choose_matmul_kernels(module.graph, is_faster=lambda product: False)
    module.recompile()

    assert list(chosen.values()) == [False]
    assert module.code == before


def test_products_of_the_same_shapes_are_measured_once():
    matrix = torch.randn(_LARGE, _LARGE)
    module = _traced(lambda a: torch.mm(torch.mm(a, a), a), matrix)
    measured = []

    choose_matmul_kernels(module.graph, is_faster=lambda product: bool(measured.append(product)))

    assert len(measured) == 1


def test_small_products_are_left_alone():
    assert collect_products(_traced(_layer, *_factors(16)).graph) == {}


def test_half_precision_is_left_alone():
    halves = [factor.bfloat16() for factor in _factors()]

    assert collect_products(_traced(_layer, *halves).graph) == {}


def test_a_product_is_measured_on_both_libraries():
    [product] = collect_products(_traced(_layer, *_factors()).graph)

    assert is_faster_by_onednn(product) in (True, False)


_COMPILE = """
import sys
from pathlib import Path
from porting.engines.aot import compiler as aot_compiler
from porting.engines.aot.inductor.optional import matmul_kernels
from porting.engines.compiled.compile_settings import CompileSettings

matmul_kernels.is_faster_by_onednn = lambda product: True
Path("out").mkdir()
aot_compiler.compile_here(Path("layer.program"), Path("out"), settings=CompileSettings())
"""


def _layer_with_gradients(weight: torch.Tensor, x: torch.Tensor, gradient: torch.Tensor) -> Any:
    weight.copy_(weight * 2)  # a weight that changes, in the order that it has
    return torch.mm(x, weight.t()), torch.mm(gradient, weight), torch.mm(gradient.t(), x)


@pytest.mark.slow
def test_weights_in_both_orders_are_multiplied_without_a_copy(tmp_path):
    arguments = [torch.randn(256, 192), torch.randn(128, 192), torch.randn(128, 256)]
    module = make_fx(_layer_with_gradients, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(tensor, name=f"input:{index}:") for index, tensor in enumerate(arguments))
    write_program(Program("step", module, specs, num_results=3), tmp_path / "layer.program")

    subprocess.run([sys.executable, "-c", _COMPILE], cwd=tmp_path, env=make_environment(), check=True)

    expected = _layer_with_gradients(arguments[0].clone(), *arguments[1:])
    found = load_library(tmp_path / "out")(arguments)
    torch.testing.assert_close(found, list(expected), rtol=1e-5, atol=1e-3)
    wrapper = "".join(file.read_text() for file in (tmp_path / "build").glob("program.*.cpp"))
    assert wrapper.count("CODE_CHECK(aoti_torch_cpu__linear_pointwise(") == 3
    assert (
        wrapper.count("CODE_CHECK(aoti_torch_empty_strided(") <= 2
    )  # the doubled weight and one factor, no copy of the weight


def _layer_with_sums(weight: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> Any:
    weight.copy_(weight * 2)
    product = torch.addmm(bias, x, weight.t())
    return product + residual, torch.mm(x, weight.t()) - residual, (torch.mm(x * 2, weight.t()) + residual).relu()


@pytest.mark.slow
def test_what_is_added_to_a_product_needs_no_constant_weight(tmp_path):
    arguments = [torch.randn(256, 192), torch.randn(128, 192), torch.randn(256), torch.randn(128, 256)]
    module = make_fx(_layer_with_sums, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(tensor, name=f"input:{index}:") for index, tensor in enumerate(arguments))
    write_program(Program("step", module, specs, num_results=3), tmp_path / "layer.program")

    subprocess.run([sys.executable, "-c", _COMPILE], cwd=tmp_path, env=make_environment(), check=True)

    expected = _layer_with_sums(arguments[0].clone(), *arguments[1:])
    found = load_library(tmp_path / "out")(arguments)
    torch.testing.assert_close(found, list(expected), rtol=1e-5, atol=1e-3)
