"""The written-out gradient of attention is that of torch's kernel."""

from __future__ import annotations

from typing import Any, Tuple

import pytest
import torch

from porting.engines.compiled.attention_gradient import attention_gradient

aten = torch.ops.aten


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
    for found, wanted in zip(attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_a_mask_is_added_to_the_scores():
    arguments, settings = _case(dtype=torch.bfloat16, with_mask=True)

    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **settings)
    for found, wanted in zip(attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_another_number_of_keys_than_queries():
    arguments, settings = _case(dtype=torch.bfloat16, keys=12)

    expected = aten._scaled_dot_product_flash_attention_for_cpu_backward(*arguments, **settings)
    for found, wanted in zip(attention_gradient(*arguments, **settings), expected):
        torch.testing.assert_close(found, wanted, rtol=0.05, atol=0.05)


def test_single_precision_stays_with_torchs_kernel():
    arguments, settings = _case(dtype=torch.float32)

    assert attention_gradient(*arguments, **settings) is NotImplemented


def test_long_sequences_stay_with_torchs_kernel():
    query = torch.zeros(1, 1, 1024, 4, dtype=torch.bfloat16)

    found = attention_gradient(query, query, query, query, query, query[..., 0].float(), 0.0, False)

    assert found is NotImplemented
