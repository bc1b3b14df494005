"""A noise band is the furthest of some runs, times a margin, and no narrower than what counts as nothing."""

from __future__ import annotations

import math

import pytest

from porting.comparison.noise import MARGIN, Noise, list_furthest


def test_without_noise_only_no_error_is_rounding():
    assert [Noise(0.0).explains(error) for error in (0.0, 1e-30)] == [True, False]


def test_a_band_is_as_wide_as_the_margin_says():
    assert Noise(2.0).band == 2.0 * MARGIN
    assert Noise(2.0, margin=3.0).band == 6.0


def test_what_counts_as_nothing_is_explained_whatever_the_runs_say():
    assert Noise(0.0, least=0.5).explains(0.5)
    assert not Noise(0.0, least=0.5).explains(0.6)
    assert Noise(1.0, least=0.5).band == MARGIN


@pytest.mark.parametrize("error", [math.nan, math.inf])
def test_what_is_not_finite_is_not_explained(error):
    assert not Noise(1e30).explains(error)


def test_a_run_that_was_far_away_once_may_be_so_later():
    assert list_furthest([[1.0, 5.0, 2.0, 3.0]]) == [1.0, 5.0, 5.0, 5.0]


def test_the_furthest_of_all_runs_counts():
    assert list_furthest([[1.0, 1.0, 9.0], [2.0, 0.0, 0.0], [0.0, 4.0, 0.0]]) == [2.0, 4.0, 9.0]


def test_what_is_not_finite_is_no_distance():
    assert list_furthest([[1.0, math.nan], [0.0, math.inf]]) == [1.0, 1.0]


def test_without_runs_nothing_is_known():
    assert list_furthest([]) == []
