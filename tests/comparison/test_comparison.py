"""Differences are relative to a scale, and a tolerance or rounding allows them."""

from __future__ import annotations

import math

import pytest

from porting.comparison import Difference, Tolerance, largest_difference


def difference_of(largest, *, scale=1.0, allowed=0.0):
    return Difference("loss", "loss", 1, largest, scale, allowed)


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


@pytest.mark.parametrize(("largest", "holds"), [(1.0, True), (1.1, False), (math.inf, False), (math.nan, False)])
def test_a_difference_holds_up_to_what_is_allowed(largest, holds):
    assert difference_of(largest, allowed=1.0).holds is holds


def test_not_a_number_is_the_most_severe_difference():
    assert difference_of(math.nan, allowed=1.0).severity == math.inf


def test_any_difference_of_nothing_is_infinitely_large():
    assert (difference_of(1.0, scale=0.0).relative, difference_of(0.0, scale=0.0).relative) == (math.inf, 0.0)
