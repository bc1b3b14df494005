"""Random rounding changes the last bits of what is computed, and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.comparison import random_rounding
from porting.comparison.random_rounding import RandomRounding

THIRDS = torch.arange(1.0, 65.0) / 3


def test_whole_numbers_integers_and_views_are_kept():
    with RandomRounding():
        exact = torch.ones(4) + torch.eye(4)
        counted = torch.arange(4) * 3
        viewed = THIRDS.view(8, 8)

    assert torch.equal(exact, torch.ones(4) + torch.eye(4))
    assert counted.tolist() == [0, 3, 6, 9]
    assert torch.equal(viewed.flatten(), THIRDS)


def test_what_is_chosen_or_moved_is_kept():
    with RandomRounding():
        maximum = THIRDS.amax()
        chosen = THIRDS[torch.tensor([5, 3])]
        joined = torch.cat([THIRDS, THIRDS])

    assert maximum == THIRDS[-1]
    assert torch.equal(chosen, torch.stack([THIRDS[5], THIRDS[3]]))
    assert torch.equal(joined[64:], THIRDS)


@pytest.mark.parametrize("choose", [torch.amax, torch.max, torch.amin, torch.median])
def test_what_is_chosen_has_a_gradient(choose):
    weight = THIRDS.clone().requires_grad_()

    with RandomRounding():
        choose(weight.sin() / 3).backward()

    assert weight.grad.isfinite().all()
    assert weight.grad.count_nonzero() == 1


def test_every_operator_that_only_moves_numbers_is_one_of_torchs():
    names = [name.partition("::")[2] for name in random_rounding._EXACT]

    assert [name for name in names if not hasattr(torch.ops.aten, name)] == []


def test_gradients_are_rounded_as_well():
    weight = THIRDS.clone().requires_grad_()

    with RandomRounding():
        torch.sin(weight).sum().backward()

    torch.testing.assert_close(weight.grad, torch.cos(THIRDS), rtol=1e-4, atol=1e-4)
    assert not torch.equal(weight.grad, torch.cos(THIRDS))


def test_the_random_stream_stays_where_it_is():
    before = torch.get_rng_state()

    with RandomRounding():
        torch.sin(THIRDS)

    assert torch.equal(torch.get_rng_state(), before)


def test_the_loss_of_a_model_that_has_learnt_its_batch_is_the_small_difference_of_large_numbers():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(16, 10, generator=generator) + 17.0 * torch.eye(10)[torch.arange(16) % 10]
    loss = nn.functional.cross_entropy(logits, torch.arange(16) % 10)

    with RandomRounding():
        rounded = nn.functional.cross_entropy(logits, torch.arange(16) % 10)

    exact = nn.functional.cross_entropy(logits.double(), torch.arange(16) % 10)
    assert (loss - exact).abs() > 1e-2 * exact
    assert (rounded - loss).abs() > 0.1 * (loss - exact).abs()
