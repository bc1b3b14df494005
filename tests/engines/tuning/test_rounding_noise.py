"""Random rounding changes what an operator computes by some last bits, and nothing that is exact."""

from __future__ import annotations

import torch

from porting.engines.tuning.rounding_noise import RandomRounding

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
