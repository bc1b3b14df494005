"""Tensors differ in their largest element, as vectors, or in where they are not finite."""

from __future__ import annotations

import math

import torch

from porting.comparison.tensors import distance_of, have_same_specials, largest_distance

SPECIAL = torch.tensor([1.0, math.nan, math.inf, -math.inf])


def test_equal_infinities_are_no_difference():
    assert largest_distance(torch.tensor([1.0, math.inf]), torch.tensor([3.0, math.inf])) == 2.0


def test_not_a_number_is_a_difference():
    assert math.isnan(largest_distance(torch.tensor([math.nan]), torch.tensor([math.nan])))


def test_the_distance_of_vectors_leaves_out_what_is_not_finite():
    assert distance_of(torch.tensor([3.0, math.inf]), torch.tensor([0.0, 1.0])) == 3.0


def test_specials_are_the_same_at_the_same_places():
    assert have_same_specials(SPECIAL, SPECIAL * 2)
    assert not have_same_specials(SPECIAL, SPECIAL.roll(1))
    assert not have_same_specials(SPECIAL, -SPECIAL)
