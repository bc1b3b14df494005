"""Random rounding changes the last bits of what is computed, and nothing else."""

from __future__ import annotations

import torch
from torch import nn

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
