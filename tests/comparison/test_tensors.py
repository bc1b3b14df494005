"""Tensors differ in their largest element, as vectors, or in where they are not finite."""

from __future__ import annotations

import math

import pytest
import torch

from porting.comparison.tensors import (
    change_last_bits,
    change_weights,
    distance_of,
    have_same_specials,
)

THIRDS = torch.arange(1.0, 65.0) / 3
SPECIAL = torch.tensor([1.0, math.nan, math.inf, -math.inf])


def test_the_distance_of_vectors_leaves_out_what_is_not_finite():
    assert distance_of(torch.tensor([3.0, math.inf]), torch.tensor([0.0, 1.0])) == 3.0


def test_specials_are_the_same_at_the_same_places():
    assert have_same_specials(SPECIAL, SPECIAL * 2)
    assert not have_same_specials(SPECIAL, SPECIAL.roll(1))
    assert not have_same_specials(SPECIAL, -SPECIAL)


@pytest.mark.parametrize(("dtype", "units"), [(torch.float32, 16), (torch.bfloat16, 2), (torch.float16, 2)])
def test_numbers_change_by_some_units_in_the_last_place(dtype, units):
    values = THIRDS[THIRDS != THIRDS.round()].to(dtype)
    before = values.clone()

    change_last_bits(values, torch.Generator().manual_seed(0))

    change = ((values.double() - before.double()) / before.double()).abs() / torch.finfo(dtype).eps
    assert 0.5 <= float(change.min()) <= float(change.max()) <= units + 1


def test_both_directions_occur():
    values = torch.full((100,), 0.3)

    change_last_bits(values, torch.Generator().manual_seed(0))

    assert 20 < int((values > 0.3).sum()) < 80


def test_all_weights_are_changed_as_the_seed_says():
    starts = [[torch.full((8,), 1 / 3, requires_grad=True), torch.full((8,), 1 / 7)] for _ in range(3)]

    for weights, seed in zip(starts, (1, 1, 2)):
        change_weights(weights, seed)

    one, same, other = (torch.cat(weights).detach() for weights in starts)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert 0.0 < float((one - torch.tensor([1 / 3, 1 / 7]).repeat_interleave(8)).abs().max()) < 1e-5
