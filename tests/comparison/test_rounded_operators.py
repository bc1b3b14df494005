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


HALVES = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)).half()


def test_an_operand_in_a_list_is_computed_wide_as_well():
    with RoundedOperators(torch.float16):
        joined = torch.cat([HALVES, HALVES])

    assert torch.equal(joined, torch.cat([HALVES, HALVES]))


def test_views_share_their_numbers():
    x = HALVES.clone()

    with RoundedOperators(torch.float16):
        x.t()[0].zero_()

    assert not x[:, 0].any()


def test_a_view_in_place_leaves_its_numbers():
    x = HALVES.clone()

    with RoundedOperators(torch.float16):
        x.t_()

    assert torch.equal(x, HALVES.t())


def test_a_cast_to_half_is_rounded_as_well():
    numbers = torch.full((5000,), 1.0 + 2.0**-11)

    with RoundedOperators(torch.float16, torch.Generator().manual_seed(0)):
        found = numbers.half()

    assert found.unique().tolist() == [1.0, 1.0 + 2.0**-10]


def test_a_result_whose_type_is_told_is_of_that_type():
    with RoundedOperators(torch.float16):
        found = HALVES.sum(dtype=torch.float32)

    assert found.dtype is torch.float32
    torch.testing.assert_close(found, HALVES.float().sum())


def test_numbers_of_another_type_are_left_alone():
    wide = torch.rand(6)

    with RoundedOperators(torch.float16, torch.Generator().manual_seed(0)):
        assert torch.equal(wide.exp(), torch.exp(wide))
        assert (wide.bfloat16() * 2).dtype is torch.bfloat16


def test_statistics_of_half_numbers_stay_in_single_precision():
    mean, variance = torch.zeros(6), torch.ones(6)

    with RoundedOperators(torch.float16):
        F.batch_norm(HALVES, mean, variance, training=True)

    torch.testing.assert_close(mean, 0.1 * HALVES.float().mean(0))


def test_running_statistics_in_half_are_written_and_rounded():
    mean, variance = torch.zeros(6).half(), torch.ones(6).half()

    with RoundedOperators(torch.float16):
        F.batch_norm(HALVES, mean, variance, training=True)

    torch.testing.assert_close(mean, (0.1 * HALVES.float().mean(0)).half())


def test_a_result_that_is_written_to_is_given_back():
    out = torch.empty(4, 6, dtype=torch.float16)

    with RoundedOperators(torch.float16):
        returned = torch.add(HALVES, HALVES, out=out)

    assert returned is out
    assert torch.equal(out, HALVES * 2)


def test_the_same_seed_rounds_in_the_same_way():
    def compute(seed):
        with RoundedOperators(torch.float16, torch.Generator().manual_seed(seed)):
            return (HALVES @ HALVES.t()).exp()

    assert torch.equal(compute(1), compute(1))
    assert not torch.equal(compute(1), compute(2))
