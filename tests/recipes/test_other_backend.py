"""The steps of recipes train on another implementation of PopTorch's API as they do on the simulator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from porting.recipe_chain import read_recipes

from .chains import QUICK_RECIPE

# the literal implementation hands no gradients out, which a host loop needs; and an ejected port has no backend
RECIPES = [recipe for recipe in read_recipes() if recipe.name not in ("trainers", "convert_your_project")]
NUM_STEPS = 3
# In half precision sums are rounded after each term or at their end, as an implementation likes. The noise of two
# executors comes from two streams, or from one.
TOLERANCES = {"cosmictagger": 2e-2, "dcgan": 0.2, "fine_tune_bert": 2e-2, "gpt_pipeline": 2e-2}


@pytest.fixture
def literal_poptorch(monkeypatch):
    """Put the literal implementation in the place of the vendor's module."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "literal_poptorch"))
    for name in [name for name in sys.modules if name.split(".")[0] == "poptorch"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "poptorch"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(recipe, id=recipe.name, marks=[] if recipe.name == QUICK_RECIPE else [pytest.mark.slow])
        for recipe in RECIPES
    ],
)
def test_the_last_step_trains_alike_on_another_implementation(recipe, train_small, literal_poptorch, monkeypatch):
    expected = train_small(recipe, NUM_STEPS)

    monkeypatch.setenv("PORTING_DEVICE", "ipu")

    tolerance = TOLERANCES.get(recipe.name, 1e-4)
    assert train_small(recipe, NUM_STEPS) == pytest.approx(expected, rel=tolerance)
    assert sys.modules["poptorch"].num_calls > 0
