"""Gradients are compared element by element, or along directions, and the wrong element is named."""

from __future__ import annotations

import math

import pytest
import torch

from porting import PortingError
from porting.gradient_check.comparison import Gradient, GradientComparison, Tolerances
from porting.gradient_check.slopes import Slopes


def compare(shape, change=None, *, function=torch.sin, **settings):
    """Compare the gradient of a sum, of which `change` makes a wrong one."""
    x = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    values = x.cos().reshape(-1) if function is torch.sin else torch.zeros(x.numel(), dtype=torch.float64)
    if change is not None:
        change(values)
    tolerances = Tolerances(float(values.abs().max()), settings.pop("atol", None), settings.pop("rtol", None))
    slopes = Slopes(lambda: float(function(x).sum()), 1e-4)
    comparison = GradientComparison(slopes, tolerances, refuses_kinks=settings.pop("refuses_kinks", False))
    comparison.compare("input 0", x, Gradient(values, torch.float64, settings.pop("is_there", True)))
    return comparison


def test_the_elements_of_a_small_tensor_are_compared_one_by_one():
    comparison = compare((3, 4))

    assert (comparison.num_elements, comparison.num_directions) == (12, 0)
    assert comparison.worst <= 1.0


def test_a_large_tensor_is_compared_along_directions():
    comparison = compare((30, 40))

    assert (comparison.num_elements, comparison.num_directions) == (0, 4)


@pytest.mark.parametrize(("shape", "place"), [((3, 4), "(1, 2)"), ((30, 40), "(0, 6)")])
def test_the_wrong_element_is_found_among_few_and_among_many(shape, place):
    with pytest.raises(PortingError) as caught:
        compare(shape, lambda values: values[6].mul_(3))

    assert caught.value.code == "V005"
    assert f"at element {place} the backward pass gives" in str(caught.value)


def test_a_gradient_that_autograd_did_not_give_is_told_as_none():
    with pytest.raises(PortingError, match="the backward pass gives no gradient"):
        compare((2,), lambda values: values.zero_(), is_there=False)


def test_the_users_tolerance_takes_the_place_of_the_type_s():
    assert compare((2,), lambda values: values.mul_(1.05), rtol=0.1).worst <= 1.0
    with pytest.raises(PortingError):
        compare((2,), lambda values: values.mul_(1.05), rtol=0.01, atol=0.0)


def test_a_coarser_type_is_allowed_more():
    rates = [
        Tolerances(1.0, None, None).rate(1.01, 1.0, 1.0, dtype)
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    ]

    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 1.0 > rates[-1]


def test_what_is_not_a_number_is_allowed_by_nothing():
    assert Tolerances(1.0, None, None).rate(math.nan, 1.0, 1.0, torch.bfloat16) == math.inf


def test_no_difference_is_inside_where_nothing_is_allowed():
    assert Tolerances(1.0, 0.0, 0.0).rate(1.0, 1.0, 1.0, torch.float32) == 0.0
