"""All recipes, their steps and neighbours as parameters of tests, and what tests of several kinds ask of them."""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest

from porting.recipe_chain import Check, Recipe, RecipeStep, Steps, read_recipes
from porting.recipe_chain.checks import EXTRA_OF_MODULE

RECIPES = {recipe.name: recipe for recipe in read_recipes()}
# the first port is proven by every `make test`, the others by `make check`
QUICK_RECIPE = "first_port"


def name_of(value: Any) -> str:
    if isinstance(value, Check):
        return f"{value.step}: {value.text}"
    return value.path.stem if isinstance(value, RecipeStep) else str(getattr(value, "name", value))


each_recipe = pytest.mark.parametrize("recipe", RECIPES.values(), ids=name_of)


@functools.lru_cache(maxsize=None)
def steps_of(recipe: Recipe) -> Steps:
    """Give the steps of a recipe, which train once for all tests."""
    return Steps(recipe)


def with_extras(recipe: Recipe) -> None:
    """Skip the test where a package is missing that the recipe imports."""
    for path in recipe.folder.glob("*.py"):
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            if name in EXTRA_OF_MODULE:
                pytest.importorskip(name)
