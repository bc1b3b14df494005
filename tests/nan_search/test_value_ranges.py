"""Ranges of tensors with and without what is not finite."""

from __future__ import annotations

import torch

from porting.nan_search import is_not_finite, measure_range

INF, NAN = float("inf"), float("nan")


def test_the_range_is_that_of_finite_values() -> None:
    measured = measure_range("x", torch.tensor([NAN, 2.0, -INF, -1.0]))

    assert (measured.lowest, measured.highest) == (-1.0, 2.0)
    assert (measured.num_nan, measured.num_infinite, measured.num_values) == (1, 1, 4)


def test_half_precision_has_a_smallest_magnitude() -> None:
    assert measure_range("x", torch.tensor([0.0, -0.5, 1.0], dtype=torch.float16)).smallest == 0.5
    assert measure_range("x", torch.zeros(2, dtype=torch.bfloat16)).smallest is None
    assert measure_range("x", torch.ones(2)).smallest is None


def test_nothing_but_nan_has_no_range() -> None:
    measured = measure_range("x", torch.tensor([NAN]))

    assert measured.lowest is None
    assert str(measured) == "x: float32[1], 1 of 1 NaN"


def test_integers_and_complex_numbers_have_ranges() -> None:
    assert measure_range("x", torch.tensor([3, -2])).lowest == -2
    assert measure_range("x", torch.tensor([True])).highest == 1
    assert measure_range("x", torch.tensor([complex(1, NAN)])).num_nan == 1
    assert measure_range("x", torch.zeros(0)).is_finite


def test_only_floats_can_be_not_finite() -> None:
    assert is_not_finite(torch.tensor(INF))
    assert not is_not_finite(torch.tensor(3))
    assert not is_not_finite("text")
    assert not is_not_finite(torch.zeros(0))
