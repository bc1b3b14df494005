"""A check gives an outcome whatever its step does."""

from __future__ import annotations

import sys

import pytest

from porting.diagnostics import PortingError
from porting.recipe_chain import CheckFailed, Steps, find_recipe, holds, read_checks, run_check

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


@pytest.mark.parametrize(("module", "extra"), [("h5py", "recipes"), ("transformers.models", "hf")])
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
