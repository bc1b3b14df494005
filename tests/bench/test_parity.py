"""Losses are the same, differ by rounding, or differ."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from porting.bench.parity import compare_losses, measure_weight_difference


def compared(eager, ported, *, precision="float32", exact=None, rounded=None):
    def reference():
        assert exact is not None, "float64 is run although nothing asks for it"
        return exact

    def rounded_otherwise(number):
        return eager if rounded is None else rounded[number]

    return compare_losses(
        eager,
        ported,
        precision=precision,
        num_steps=len(eager),
        reference=reference,
        rounded=rounded_otherwise,
    )


def test_equal_losses_pass_without_a_float64_run():
    assert compared([1.0, 0.5], [1.0, 0.5]).verdict == "pass"


@pytest.mark.parametrize(("precision", "passes"), [("float32", False), ("bfloat16", True), ("mixed", True)])
def test_a_percent_passes_in_half_precision_only(precision, passes):
    parity = compared([1.0, 0.5], [1.0, 0.505], precision=precision, exact=[1.0, 0.5])

    assert (parity.verdict != "fail") is passes


def test_a_difference_that_eager_has_from_float64_as_well_is_rounding():
    parity = compared([1.0001], [0.9999], exact=[1.0])

    assert parity.verdict == "rounding"
    assert (parity.reference_eager, parity.reference_ported) == (pytest.approx(1e-4), pytest.approx(1e-4))


def test_a_difference_that_eager_does_not_have_from_float64_fails():
    assert compared([1.0], [0.999], exact=[1.0]).verdict == "fail"


def test_a_difference_that_another_run_of_eager_has_is_rounding():
    parity = compared([1.0], [0.9995], exact=[1.0], rounded=[[1.0], [1.0003]])

    assert parity.verdict == "rounding"
    assert parity.reference_eager == pytest.approx(3e-4)


def test_a_difference_that_no_run_of_eager_has_fails():
    runs = [[1.0], [1.0001], [0.9999], [math.nan]]

    assert compared([1.0], [0.9995], exact=[1.0], rounded=runs).verdict == "fail"


def test_float64_excuses_nothing_where_it_is_far_from_both():
    # random numbers are others in float64, so that it says nothing about rounding
    assert compared([1.0], [1.5], exact=[2.0]).verdict == "fail"


def test_where_rounding_leads_eager_itself_away_the_comparison_ends():
    exact = [1.0] * 20
    eager = [1.0 + 1e-6 * 2**step for step in range(20)]
    ported = [1.0 - 1e-6 * 2**step for step in range(20)]

    parity = compared(eager, ported, exact=exact)

    assert (parity.verdict, parity.num_referenced) == ("rounding", 14)
    assert parity.difference > 0.1 > 1e-2 > parity.reference_ported


@pytest.mark.parametrize(
    "wrong",
    [
        lambda eager: [1.0 - 1e-5 * 2**step for step in range(20)],
        lambda eager: [1.0 + 1.5e-2] * 20,  # as far as eager is in the end, but from the first step on
        lambda eager: eager[:14] + [1000.0] * 6,
    ],
)
def test_a_port_that_is_wrong_fails_where_rounding_leads_eager_away_as_well(wrong):
    eager = [1.0 + 1e-6 * 2**step for step in range(20)]

    assert compared(eager, wrong(eager), exact=[1.0] * 20).verdict == "fail"


def test_a_few_losses_of_which_float64_says_something_excuse_nothing():
    exact, eager = [1.0] * 20, [1.0 + 1e-4 * 8**step for step in range(20)]

    parity = compared(eager, eager[:1] + [1.5] * 19, exact=exact)

    assert (parity.verdict, parity.num_referenced) == ("fail", None)


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_what_is_not_finite_fails(odd):
    parity = compared([1.0, 1.0], [1.0, odd])

    assert (parity.verdict, parity.difference) == ("fail", None)


def test_a_loss_that_was_learnt_away_counts_by_the_size_it_had():
    assert compared([1.0, 1e-9], [1.0, 2e-9]).verdict == "pass"


def test_weights_are_compared_by_their_size():
    one, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        other.weight.copy_(one.weight * 1.5)

    assert measure_weight_difference(one, other) == pytest.approx(0.5)


def test_a_port_may_be_twice_as_far_from_float64_as_the_furthest_run_of_eager():
    rounded = [[1.0 + 1e-4]] * 5

    verdicts = [compared([1.0], [1.0 + error], exact=[1.0], rounded=rounded).verdict for error in (1.9e-4, 2.1e-4)]

    assert verdicts == ["rounding", "fail"]


def test_runs_of_eager_are_made_until_one_explains_it():
    asked = []

    class Runs(list):
        def __getitem__(self, number):
            asked.append(number)
            return super().__getitem__(number)

    compared([1.0], [1.0 + 1e-4], exact=[1.0], rounded=Runs([[1.0], [1.0 + 1e-4], [1.0], [1.0]]))

    assert asked == [0, 1]


def test_a_run_of_eager_that_was_far_away_once_may_be_so_later():
    exact = [1.0] * 6
    eager = [1.0, 1.0 + 1e-4, *[1.0] * 4]

    assert compared(eager, [*[1.0] * 5, 1.0 + 1.5e-4], exact=exact).verdict == "rounding"


def test_a_run_of_eager_that_is_not_finite_explains_nothing():
    assert compared([1.0], [1.001], exact=[1.0], rounded=[[math.nan]] * 4).verdict == "fail"


def test_curves_of_other_lengths_are_not_compared():
    parity = compared([1.0, 1.0], [1.0])

    assert (parity.verdict, parity.difference) == ("fail", None)
