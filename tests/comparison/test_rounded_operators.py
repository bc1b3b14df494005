"""Operators on half numbers are computed in float32 and rounded once, to the nearest number or at random."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from porting.comparison.rounded_operators import RoundedOperators


def test_products_are_summed_in_float32_and_rounded_once():
    torch.manual_seed(0)
    one, other = torch.randn(8, 512).half(), torch.randn(512, 8).half()

    with RoundedOperators(torch.float16):
        found = one @ other

    assert torch.equal(found, (one.float() @ other.float()).half())


def test_rounding_at_random_is_right_on_average():
    ones = torch.ones(20000, dtype=torch.float16)

    with RoundedOperators(torch.float16, torch.Generator().manual_seed(1)):
        sums = ones + ones * 2.0**-12

    assert sums.unique().tolist() == [1.0, 1.0 + 2.0**-10]
    assert float(sums.double().mean()) == pytest.approx(1.0 + 2.0**-12, abs=3e-5)


def test_what_is_written_in_place_is_rounded():
    x = torch.ones(4, dtype=torch.float16)

    with RoundedOperators(torch.float16):
        x.mul_(3.0).add_(torch.full((4,), 2.0**-20))

    assert x.dtype == torch.float16
    assert x.tolist() == [3.0] * 4


def test_a_wider_operand_makes_a_wide_result():
    with RoundedOperators(torch.float16):
        assert (torch.ones(2, dtype=torch.float16) + torch.ones(2)).dtype == torch.float32
        assert (torch.ones(2, dtype=torch.float16) * torch.tensor(2.0)).dtype == torch.float16
        assert F.layer_norm(torch.ones(2, 4, dtype=torch.float16), (4,)).dtype == torch.float16


def test_the_random_stream_is_that_of_float32():
    torch.manual_seed(3)
    expected = F.dropout(torch.ones(64), 0.5)
    torch.manual_seed(3)

    with RoundedOperators(torch.float16):
        found = F.dropout(torch.ones(64, dtype=torch.float16), 0.5)

    assert torch.equal(found.float(), expected)


def test_the_backward_pass_of_a_softmax_is_computed_in_float32_and_rounded():
    logits = torch.randn(8, 5).half().requires_grad_()
    labels = torch.randint(5, (8,))
    wide = logits.detach().float().requires_grad_()
    F.cross_entropy(wide, labels).backward()

    with RoundedOperators(torch.float16):
        loss = F.nll_loss(torch.log_softmax(logits, 1), labels)
        loss.backward()

    assert logits.grad.dtype is torch.float16
    torch.testing.assert_close(logits.grad.float(), wide.grad, rtol=1e-2, atol=1e-3)
