"""Differences are relative to a scale, and a tolerance or rounding allows them."""

from __future__ import annotations

import math

import pytest

from porting.comparison import Tolerance, largest_difference


def test_the_largest_difference_of_no_losses_is_none():
    assert largest_difference([], []) == (0.0, 0)


def test_zeros_are_equal():
    assert largest_difference([0.0, 0.0], [0.0, 0.0]) == (0.0, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_differs_from_itself(value):
    assert largest_difference([1.0, value], [1.0, value]) == (math.inf, 1)


def test_a_difference_is_relative_to_the_scale_that_is_asked_for():
    worst, place = largest_difference([2.0, 1.0], [2.0, 1.5], scale_of=lambda one, _other: 10 * one)

    assert (worst, place) == (pytest.approx(0.05), 1)


def test_a_tolerance_allows_the_larger_of_its_two_bounds():
    assert [Tolerance(0.5, 1.0).allowed_at(scale) for scale in (0.0, 4.0)] == [1.0, 2.0]
