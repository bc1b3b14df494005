"""Checks say what they demand, and fail with what was found instead."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from porting.recipe_chain import (
    CheckFailed,
    Losses,
    close_losses,
    demand,
    demand_equal,
    demand_falling,
    equal_losses,
    holds,
    measured,
    reaches,
    run_program,
)


class Steps:
    """Steps whose losses are given; each step is its own number."""

    def __init__(self, **losses):
        self._losses = {int(name[1:]): values for name, values in losses.items()}

    def losses(self, number, num_steps=None):
        return self._losses[number][:num_steps]

    def call(self, number, function):
        return function(number)


@pytest.mark.parametrize("value", [1.0, 1.000009, 0.999991])
def test_equal_losses_may_differ_by_rounding(value):
    assert equal_losses(1, like=0).look(Steps(_0=[2.0, 1.0], _1=[2.0, value])).startswith("2 losses")


def test_losses_that_differ_fail_with_where():
    with pytest.raises(CheckFailed, match=r"largest relative difference 5.0e-01 in optimizer step 2"):
        equal_losses(1, like=0).look(Steps(_0=[1.0, 1.0], _1=[1.0, 0.5]))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_equals_nothing_not_even_itself(value):
    with pytest.raises(CheckFailed, match="inf"):
        equal_losses(1, like=0).look(Steps(_0=[value], _1=[value]))


def test_fewer_losses_fail():
    with pytest.raises(CheckFailed, match="1 losses, and 2 of step 0"):
        equal_losses(1, like=0).look(Steps(_0=[1.0, 2.0], _1=[1.0]))


def test_the_number_of_optimizer_steps_can_be_said():
    assert equal_losses(1, like=0, num_steps=1).look(Steps(_0=[1.0, 1.0], _1=[1.0, 2.0])).startswith("1 losses")


def test_losses_of_zero_are_equal():
    assert equal_losses(1, like=0).look(Steps(_0=[0.0], _1=[0.0]))


def test_close_losses_have_a_tolerance_and_a_reason():
    check = close_losses(2, like=0, relative=0.1, because="half precision")

    assert check.text == "losses within 10% of step 0's (half precision)"
    assert check.look(Steps(_0=[1.0], _2=[1.09]))
    with pytest.raises(CheckFailed):
        check.look(Steps(_0=[1.0], _2=[1.2]))


@pytest.mark.parametrize(
    ("bounds", "is_met"), [({"at_least": 3}, True), ({"at_least": 3.5}, False), ({"at_most": 2}, False)]
)
def test_what_is_reached_is_within_bounds(bounds, is_met):
    check = reaches(3, "number", measure=lambda step: step, **bounds)

    if is_met:
        assert check.look(Steps()) == "3"
    else:
        with pytest.raises(CheckFailed, match="^3$"):
            check.look(Steps())


def test_not_a_number_is_within_no_bounds():
    with pytest.raises(CheckFailed, match="nan"):
        reaches(0, "number", at_least=0, at_most=9, measure=lambda _step: math.nan).look(Steps())


def test_a_check_without_bounds_is_a_mistake():
    with pytest.raises(ValueError, match="at_least"):
        reaches(0, "number", measure=float)


def test_what_holds_is_said_by_its_function():
    assert holds(4, "it is even", lambda step: f"{step} is").look(Steps()) == "4 is"


def test_a_demand_returns_what_was_found_or_fails_with_it():
    assert demand(True, "fine") == "fine"
    with pytest.raises(CheckFailed, match="bad"):
        demand(False, "bad")


def test_a_program_runs_in_its_folder_with_one_thread_and_its_failure_fails_the_check(tmp_path):
    told = run_program("-c", "import os; print(os.getcwd(), os.environ['OMP_NUM_THREADS'])", folder=tmp_path)

    assert told.split() == [str(tmp_path.resolve()), "1"]
    with pytest.raises(CheckFailed, match="no such thing"):
        run_program("-c", "raise SystemExit('no such thing')")


@pytest.mark.parametrize(("num_steps", "found"), [((), 9.0), ((3,), 3.0)])
def test_what_a_program_measures_can_be_demanded(num_steps, found):
    step = SimpleNamespace(train=lambda num_steps=9: Losses([0.5], accuracy=num_steps))

    assert measured("accuracy", *num_steps)(step) == found


def test_values_that_fall_are_told_by_their_ends():
    assert demand_falling([0.5, 0.25]) == "0.500 to 0.250"


def test_a_value_that_does_not_fall_fails_with_all():
    with pytest.raises(CheckFailed, match=r"0\.500, 0\.500"):
        demand_falling([0.5, 0.5])


def test_fewer_losses_are_not_equal():
    with pytest.raises(CheckFailed, match="1 losses, and 2 expected"):
        demand_equal([1.0, 2.0], [1.0])
