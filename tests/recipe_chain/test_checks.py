"""Checks say what they demand, and fail with what was found instead."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import pytest

from porting.diagnostics import PortingError
from porting.recipe_chain import (
    CheckFailed,
    Losses,
    Steps,
    close_losses,
    demand,
    demand_equal,
    demand_falling,
    equal_losses,
    find_recipe,
    holds,
    measured,
    reaches,
    read_checks,
    run_check,
    run_program,
)


class GivenSteps:
    """Steps whose losses are given; each step is its own number."""

    def __init__(self, **losses):
        self._losses = {int(name[1:]): values for name, values in losses.items()}

    def losses(self, number, num_steps=None):
        return self._losses[number][:num_steps]

    def call(self, number, function):
        return function(number)

    measure = call


@pytest.mark.parametrize("value", [1.0, 1.000009, 0.999991])
def test_equal_losses_may_differ_by_rounding(value):
    assert equal_losses(1, like=0).look(GivenSteps(_0=[2.0, 1.0], _1=[2.0, value])).startswith("2 losses")


def test_losses_that_differ_fail_with_where():
    with pytest.raises(CheckFailed, match=r"largest relative difference 5.0e-01 in optimizer step 2"):
        equal_losses(1, like=0).look(GivenSteps(_0=[1.0, 1.0], _1=[1.0, 0.5]))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_equals_nothing_not_even_itself(value):
    with pytest.raises(CheckFailed, match="inf"):
        equal_losses(1, like=0).look(GivenSteps(_0=[value], _1=[value]))


def test_fewer_losses_fail():
    with pytest.raises(CheckFailed, match="1 losses, and 2 of step 0"):
        equal_losses(1, like=0).look(GivenSteps(_0=[1.0, 2.0], _1=[1.0]))


def test_the_number_of_optimizer_steps_can_be_said():
    assert equal_losses(1, like=0, num_steps=1).look(GivenSteps(_0=[1.0, 1.0], _1=[1.0, 2.0])).startswith("1 losses")


def test_losses_of_zero_are_equal():
    assert equal_losses(1, like=0).look(GivenSteps(_0=[0.0], _1=[0.0]))


def test_close_losses_have_a_tolerance_and_a_reason():
    check = close_losses(2, like=0, relative=0.1, because="half precision")

    assert check.text == "losses within 10% of step 0's (half precision)"
    assert check.look(GivenSteps(_0=[1.0], _2=[1.09]))
    with pytest.raises(CheckFailed):
        check.look(GivenSteps(_0=[1.0], _2=[1.2]))


@pytest.mark.parametrize(
    ("bounds", "is_met"), [({"at_least": 3}, True), ({"at_least": 3.5}, False), ({"at_most": 2}, False)]
)
def test_what_is_reached_is_within_bounds(bounds, is_met):
    check = reaches(3, "number", measure=lambda step: step, **bounds)

    if is_met:
        assert check.look(GivenSteps()) == "3"
    else:
        with pytest.raises(CheckFailed, match="^3$"):
            check.look(GivenSteps())


def test_not_a_number_is_within_no_bounds():
    with pytest.raises(CheckFailed, match="nan"):
        reaches(0, "number", at_least=0, at_most=9, measure=lambda _step: math.nan).look(GivenSteps())


def test_a_check_without_bounds_is_a_mistake():
    with pytest.raises(ValueError, match="at_least"):
        reaches(0, "number", measure=float)


def test_what_holds_is_said_by_its_function():
    assert holds(4, "it is even", lambda step: f"{step} is").look(GivenSteps()) == "4 is"


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


STEPS = Steps(find_recipe("first_port"))


def outcome_of(look):
    return run_check(holds(0, "it holds", lambda _step: look()), STEPS)


def failing(error):
    def look():
        sys.stdout.write("seen\n")
        raise error

    return look


def test_what_holds_is_met_and_says_what_was_found():
    outcome = outcome_of(lambda: "fine")

    assert (outcome.is_met, outcome.found, outcome.trouble) == (True, "fine", "")
    assert outcome.seconds >= 0


def test_what_fails_says_what_was_found_and_printed():
    outcome = outcome_of(failing(CheckFailed("0.3")))

    assert (outcome.is_met, outcome.found, outcome.trouble) == (False, "0.3", "seen\n")


def test_an_exception_is_an_outcome_with_its_traceback():
    outcome = outcome_of(failing(ValueError("first\nsecond")))

    assert (outcome.is_met, outcome.found) == (False, "raised ValueError: first")
    assert "Traceback" in outcome.trouble


def test_a_finding_is_an_outcome_with_its_text():
    outcome = outcome_of(failing(PortingError.of("B001")))

    assert (outcome.is_met, outcome.found) == (False, "error B001")
    assert "error[B001]" in outcome.trouble


@pytest.mark.parametrize(("module", "extra"), [("h5py", "recipes"), ("transformers.models", "transformers")])
def test_a_missing_package_of_an_extra_is_no_outcome(module, extra):
    with pytest.raises(PortingError) as caught:
        outcome_of(failing(ModuleNotFoundError("none", name=module)))

    assert caught.value.code == "X001"
    assert extra in caught.value.finding.help[0]


def test_another_missing_module_is_an_outcome():
    assert outcome_of(failing(ModuleNotFoundError("No module named 'x'", name="x"))).found.startswith("raised Module")


def test_a_program_that_ends_itself_is_an_outcome():
    outcome = outcome_of(failing(SystemExit(0)))

    assert (outcome.is_met, outcome.found) == (False, "raised SystemExit: 0")


def test_an_interrupt_is_not_held_back():
    with pytest.raises(KeyboardInterrupt):
        outcome_of(failing(KeyboardInterrupt()))


def test_a_chain_of_steps_is_checked_step_by_step(tmp_path):
    for number in range(3):
        (tmp_path / f"step_{number}_one.py").write_text("def train(num_steps):\n    return [1.0] * num_steps\n")
    table = 'CHECKS = (*chain_of_equal_losses(1, 2), holds(1, "it holds", lambda step: "fine"))'
    (tmp_path / "checks.py").write_text(f"from porting.recipe_chain import chain_of_equal_losses, holds\n\n{table}\n")
    recipe = find_recipe(str(tmp_path))

    with Steps(recipe) as steps:
        checks = read_checks(recipe, steps)

    assert [(check.step, check.text) for check in checks] == [
        (1, "losses equal step 0's"),
        (1, "it holds"),
        (2, "losses equal step 1's"),
    ]
