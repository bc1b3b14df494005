"""A factor that many numbers have in common is found below what rounding does to each of them."""

from __future__ import annotations

import math

import pytest
import torch

from porting.comparison.shifts import Shifts, find_slopes

UNIT = 2.0**-10
DRAWS = torch.Generator().manual_seed(0)
VALUES = torch.randn(1000, generator=DRAWS, dtype=torch.float64)


def runs(noise=UNIT, *, num=5, factor=1.0, values=VALUES):
    """Give rows that are rounded at random, of which the last is off by `factor`."""
    rows = torch.stack([values * (1 + noise * torch.randn(values.shape, generator=DRAWS)) for _ in range(num)])
    rows[-1] *= factor
    return rows


def measure(rows, *, least=0.0):
    return Shifts(UNIT).measure(rows, least).factor


def test_rounding_has_no_factor_in_common():
    assert measure(runs()) < 0.5


@pytest.mark.parametrize("factor", [0.99, 1.01])
def test_a_factor_below_the_noise_of_each_number_is_found(factor):
    assert measure(runs(0.05, factor=factor), least=0.0) < 1.0 < measure(runs(0.002, factor=factor))


def test_all_steps_together_find_what_none_of_them_does():
    shifts, alone = Shifts(UNIT), []
    for _step in range(30):
        rows = runs(0.08, factor=1.01)
        alone.append(measure(rows))
        together = shifts.measure(rows, 0.0).factor

    assert max(alone) < 1.0 < together


def test_a_few_elements_that_are_led_elsewhere_are_no_factor():
    rows = runs()
    rows[-1, :200] *= 3.0

    assert measure(rows) < 1.0


def test_half_a_unit_in_the_last_place_may_be_to_one_side():
    rows = runs(1e-6, factor=1 + UNIT / 4)

    assert measure(rows) < 1.0 < measure(runs(1e-6, factor=1 + 2 * UNIT))


def test_what_is_stored_in_half_may_be_off_by_its_own_last_place():
    rows = runs(1e-6, factor=1.01)

    assert measure(rows, least=0.05 * float(VALUES.norm())) < 1.0


def test_a_few_numbers_may_be_further_off_than_many():
    few = [measure(runs(factor=1.01, values=VALUES[:4])) for _ in range(5)]

    assert max(few) < measure(runs(factor=1.01))


def test_the_runs_that_agree_by_chance_make_no_narrow_band():
    rows = runs(num=3)
    rows[0] = VALUES
    rows[1] = VALUES + UNIT * VALUES.abs() * (torch.arange(1000) % 2 * 2 - 1) * VALUES.sign()

    assert measure(rows) < 1.0


def test_a_tensor_of_noise_has_no_factor():
    assert measure(runs(0.5, factor=2.0)) == 0.0
    assert measure(torch.zeros(5, 10)) == 0.0


def test_a_run_that_was_not_so_long_counts_as_far_as_it_went():
    shifts, rows = Shifts(UNIT), runs(factor=1.1)
    shifts.measure(rows, 0.0)
    rows[2] = math.nan

    assert shifts.measure(rows, 0.0).factor > 1.0


def test_the_ratio_is_how_far_it_is_beside_what_is_usual():
    rows = torch.stack([VALUES, VALUES + 1e-3, VALUES - 1e-3, VALUES + 5e-3])

    assert Shifts(UNIT).measure(rows, 0.0).ratio == pytest.approx(5.0, rel=0.1)


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_a_slope_is_that_of_most_of_the_weight(size):
    direction = torch.arange(1.0, size + 1)
    differences = torch.stack([0.25 * direction, -0.5 * direction])

    assert find_slopes(differences, direction).tolist() == [0.25, -0.5]


def test_elements_without_a_value_have_no_slope():
    assert find_slopes(torch.tensor([[7.0, 0.5]]), torch.tensor([0.0, 1.0])).tolist() == [0.5]
