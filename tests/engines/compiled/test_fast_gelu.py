"""GELU by other arithmetic is GELU, to the last places of single precision."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.fast_gelu import FAST_GELU, fast_erf, fast_gelu, fast_gelu_backward

aten = torch.ops.aten
EVERYWHERE = torch.cat([torch.linspace(-12, 12, 200_001), torch.logspace(-30, 1, 2000), -torch.logspace(-30, 1, 2000)])
EPSILON = torch.finfo(torch.float32).eps

both = pytest.mark.parametrize("approximate", ["none", "tanh"])


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


@both
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 1e12, -1e12])
def test_what_is_not_finite_or_huge_is_as_in_torch(value, approximate):
    x = torch.tensor([value])

    found, wanted = (gelu(x, approximate=approximate) for gelu in (fast_gelu, aten.gelu.default))
    torch.testing.assert_close(found, wanted, equal_nan=True)
    found, wanted = (
        backward(torch.ones(1), x, approximate=approximate)
        for backward in (fast_gelu_backward, aten.gelu_backward.default)
    )
    torch.testing.assert_close(found, wanted, equal_nan=True)


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_once(dtype, approximate):
    x = torch.linspace(-6, 6, 1001).to(dtype)

    found, wanted = (gelu(x, approximate=approximate) for gelu in (fast_gelu, aten.gelu.default))
    torch.testing.assert_close(found, wanted)
    assert fast_gelu_backward(torch.ones_like(x), x).dtype == dtype


@both
def test_double_precision_stays_torchs(approximate):
    x = torch.ones(3, dtype=torch.float64)

    traced = make_fx(lambda x: aten.gelu.default(x, approximate=approximate), decomposition_table=dict(FAST_GELU))(x)

    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [aten.gelu.default]
