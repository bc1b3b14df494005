"""The checks of every recipe hold, and each step has one."""

from __future__ import annotations

from typing import Any, List, Tuple, Union

import pytest

from porting.diagnostics import PortingError
from porting.recipe_chain import Check, Recipe, read_checks, run_check

from .chains import QUICK_RECIPE, RECIPES, each_recipe, name_of, steps_of, with_extras


def checks_of(recipe: Recipe) -> Tuple[Check, ...]:
    return read_checks(recipe, steps_of(recipe))


def all_checks() -> List[Any]:
    """List all checks; in the place of those of a recipe that cannot be read stands the error."""
    found: List[Any] = []
    for recipe in RECIPES.values():
        try:
            found += [as_parameter(recipe, check) for check in checks_of(recipe)]
        except Exception as error:
            found.append(pytest.param(recipe, error, id=f"{recipe.name}-checks"))
    return found


def as_parameter(recipe: Recipe, check: Check) -> Any:
    marks = [pytest.mark.slow] if check.slow or recipe.name != QUICK_RECIPE else []
    return pytest.param(recipe, check, id=f"{recipe.name}-{name_of(check)}", marks=marks)


def skip_without_extra(error: PortingError) -> None:
    if error.finding.code == "X001":
        pytest.skip("; ".join(error.finding.notes))


@pytest.mark.parametrize(("recipe", "check"), all_checks())
def test_a_check_holds(recipe: Recipe, check: Union[Check, Exception], request: pytest.FixtureRequest):
    if isinstance(check, PortingError):
        skip_without_extra(check)
    if isinstance(check, Exception):
        raise check
    if check.slow:  # no other starts processes
        request.getfixturevalue("programs_have_simulator")
    try:
        outcome = run_check(check, steps_of(recipe))
    except PortingError as error:
        skip_without_extra(error)
        raise

    assert outcome.is_met, f"{outcome.found}\n{outcome.trouble}"


@each_recipe
def test_each_step_has_a_check(recipe):
    with_extras(recipe)

    assert {check.step for check in checks_of(recipe)} == {step.number for step in recipe.steps}
