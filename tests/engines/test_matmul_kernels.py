"""Products of matrices go to the faster library, and only where that is worth it."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.matmul_kernels import choose_matmul_kernels, is_faster_by_onednn, products

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
    assert products(_traced(_layer, *_factors(16)).graph) == {}


def test_half_precision_is_left_alone():
    halves = [factor.bfloat16() for factor in _factors()]

    assert products(_traced(_layer, *halves).graph) == {}


def test_a_product_is_measured_on_both_libraries():
    [product] = products(_traced(_layer, *_factors()).graph)

    assert is_faster_by_onednn(product) in (True, False)
