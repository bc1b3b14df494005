"""Products go to the library that was chosen for their shapes."""

from __future__ import annotations

import pytest
import torch

from porting.engines.recurrence.products import Products, describe_product


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="there is no oneDNN")
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("transposes", [False, True])
def test_both_libraries_compute_the_same(has_bias, transposes):
    left = torch.randn(8, 6).t() if transposes else torch.randn(6, 8)
    right, bias = torch.randn(8, 5), torch.randn(5) if has_bias else None

    found = Products([describe_product(left, right, bias)]).multiply(left, right, bias)

    torch.testing.assert_close(found, Products().multiply(left, right, bias))


def test_a_product_is_told_by_its_strides():
    left, right = torch.randn(6, 6), torch.randn(6, 6)

    assert describe_product(left, right) != describe_product(left.t(), right)
