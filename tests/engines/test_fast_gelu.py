"""GELU by polynomials is GELU, to the last places of single precision."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.fast_gelu import FAST_GELU, fast_erf, fast_gelu, fast_gelu_backward

aten = torch.ops.aten
EVERYWHERE = torch.cat([torch.linspace(-12, 12, 200_001), torch.logspace(-30, 1, 2000), -torch.logspace(-30, 1, 2000)])
EPSILON = torch.finfo(torch.float32).eps


def test_the_error_function_is_exact_to_a_few_units_in_the_last_place():
    exact = torch.erf(EVERYWHERE.double())

    error = ((fast_erf(EVERYWHERE).double() - exact) / exact.where(exact != 0, 1.0)).abs().max()

    assert error < 8 * EPSILON


def test_gelu_is_as_exact_as_torchs_own():
    exact = aten.gelu.default(EVERYWHERE.double())

    error, of_torch = ((gelu(EVERYWHERE) - exact).abs().max() for gelu in (fast_gelu, aten.gelu.default))

    assert error < 4 * max(of_torch, EPSILON)


def test_its_gradient_is_as_exact_as_torchs_own():
    grad = torch.ones_like(EVERYWHERE)
    exact = aten.gelu_backward.default(grad.double(), EVERYWHERE.double())

    error, of_torch = (
        (backward(grad, EVERYWHERE) - exact).abs().max()
        for backward in (fast_gelu_backward, aten.gelu_backward.default)
    )

    assert error < 4 * max(of_torch, EPSILON)


@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 3e38, -3e38])
def test_what_is_not_finite_or_huge_is_as_in_torch(value):
    x = torch.tensor([value])

    torch.testing.assert_close(fast_gelu(x), aten.gelu.default(x), equal_nan=True)
    torch.testing.assert_close(
        fast_gelu_backward(torch.ones(1), x), aten.gelu_backward.default(torch.ones(1), x), equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_once(dtype):
    x = torch.linspace(-6, 6, 1001).to(dtype)

    torch.testing.assert_close(fast_gelu(x), aten.gelu.default(x))
    assert fast_gelu_backward(torch.ones_like(x), x).dtype == dtype


@pytest.mark.parametrize(("dtype", "approximate"), [(torch.float32, "tanh"), (torch.float64, "none")])
def test_others_stay_torchs(dtype, approximate):
    x = torch.ones(3, dtype=dtype)

    traced = make_fx(lambda x: aten.gelu.default(x, approximate=approximate), decomposition_table=dict(FAST_GELU))(x)

    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [aten.gelu.default]
