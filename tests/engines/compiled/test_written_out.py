"""What is written out for a compiler computes what torch's kernels do, to the last places."""

from __future__ import annotations

from typing import Any, Tuple

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.written_out import (
    WRITTEN_OUT,
    compute_attention_gradient,
    compute_erf,
    compute_gelu,
    compute_gelu_gradient,
)

aten = torch.ops.aten
EVERYWHERE = torch.cat([torch.linspace(-12, 12, 200_001), torch.logspace(-30, 1, 2000), -torch.logspace(-30, 1, 2000)])
EPSILON = torch.finfo(torch.float32).eps

both = pytest.mark.parametrize("approximate", ["none", "tanh"])


def test_the_error_function_is_exact_to_a_few_units_in_the_last_place():
    exact = torch.erf(EVERYWHERE.double())

    error = ((compute_erf(EVERYWHERE).double() - exact) / exact.where(exact != 0, 1.0)).abs().max()

    assert error < 8 * EPSILON


def test_gelu_is_as_exact_as_torchs_own():
    exact = aten.gelu.default(EVERYWHERE.double())

    error, of_torch = ((gelu(EVERYWHERE) - exact).abs().max() for gelu in (compute_gelu, aten.gelu.default))

    assert error < 4 * max(of_torch, EPSILON)


def test_its_gradient_is_as_exact_as_torchs_own():
    grad = torch.ones_like(EVERYWHERE)
    exact = aten.gelu_backward.default(grad.double(), EVERYWHERE.double())

    error, of_torch = (
        (backward(grad, EVERYWHERE) - exact).abs().max()
        for backward in (compute_gelu_gradient, aten.gelu_backward.default)
    )

    assert error < 4 * max(of_torch, EPSILON)


@both
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan"), 1e12, -1e12])
def test_what_is_not_finite_or_huge_is_as_in_torch(value, approximate):
    x = torch.tensor([value])

    found, wanted = (gelu(x, approximate=approximate) for gelu in (compute_gelu, aten.gelu.default))
    torch.testing.assert_close(found, wanted, equal_nan=True)
    found, wanted = (
        backward(torch.ones(1), x, approximate=approximate)
        for backward in (compute_gelu_gradient, aten.gelu_backward.default)
    )
    torch.testing.assert_close(found, wanted, equal_nan=True)


@both
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_rounded_once(dtype, approximate):
    x = torch.linspace(-6, 6, 1001).to(dtype)

    found, wanted = (gelu(x, approximate=approximate) for gelu in (compute_gelu, aten.gelu.default))
    torch.testing.assert_close(found, wanted)
    assert compute_gelu_gradient(torch.ones_like(x), x).dtype == dtype


@both
def test_double_precision_stays_torchs(approximate):
    x = torch.ones(3, dtype=torch.float64)

    traced = make_fx(lambda x: aten.gelu.default(x, approximate=approximate), decomposition_table=dict(WRITTEN_OUT))(x)

    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [aten.gelu.default]


# -- the gradient of attention


def _case(*, dtype: torch.dtype, keys: int = 8, with_mask: bool = False, is_causal: bool = False) -> Tuple[Any, Any]:
    generator = torch.Generator().manual_seed(3)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    query, key, value, grad = (
        numbers(2, 3, 8, 16),
        numbers(2, 3, keys, 16),
        numbers(2, 3, keys, 16),
        numbers(2, 3, 8, 16),
    )
    settings = {"attn_mask": numbers(2, 3, 8, keys) if with_mask else None}
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, is_causal, **settings)
    return (grad, query, key, value, out, logsumexp, 0.0, is_causal), settings


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_gradient_is_that_of_torchs_kernel(dtype, is_causal):
    arguments, settings = _case(dtype=dtype, is_causal=is_causal)

    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **settings)
    for found, wanted in zip(compute_attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_a_mask_is_added_to_the_scores():
    arguments, settings = _case(dtype=torch.bfloat16, with_mask=True)

    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **settings)
    for found, wanted in zip(compute_attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_another_number_of_keys_than_queries():
    arguments, settings = _case(dtype=torch.bfloat16, keys=12)

    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **settings)
    for found, wanted in zip(compute_attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_single_precision_stays_with_torchs_kernel():
    arguments, settings = _case(dtype=torch.float32)

    assert compute_attention_gradient(*arguments, **settings) is NotImplemented


def test_long_sequences_stay_with_torchs_kernel():
    query = torch.zeros(1, 1, 1024, 4, dtype=torch.bfloat16)

    found = compute_attention_gradient(query, query, query, query, query, query[..., 0].float(), 0.0, False)

    assert found is NotImplemented
