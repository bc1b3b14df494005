"""Every step of every recipe trains on the hardware path, and the last ones as on the simulator."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest

from porting.recipe_chain import Recipe, Steps, read_recipes

ROOT = Path(__file__).resolve().parents[2]
RECIPES = read_recipes()
NUM_STEPS = 2

# From the same seeds both versions of torch draw the same weights and data; what they compute differs by rounding.
TOLERANCE = 1e-4
# Half precision is rounded after each term or at the end of a sum, as an implementation likes.
TOLERANCES = {"cosmictagger": 2e-2, "gpt_pipeline": 2e-2}
# Dropout, and noise that the model draws, come from a random stream of the device's own.
OWN_NOISE = {"dcgan", "fine_tune_bert", "ptb_rnn"}

ON_THE_SIMULATOR = f"""
import json, traceback
from porting.recipe_chain import Steps, read_recipes

told = {{}}
for recipe in read_recipes():
    try:
        told[recipe.name] = Steps(recipe).losses(recipe.steps[-1].number, {NUM_STEPS})
    except Exception:
        told[recipe.name] = traceback.format_exc()
with open("losses.json", "w") as file:
    json.dump(told, file)
"""

# a recipe is a program of its own, and warns of what it likes
pytestmark = pytest.mark.filterwarnings("default")


@functools.lru_cache(maxsize=None)
def steps_of(recipe: Recipe) -> Steps:
    """Give the steps of a recipe, which train once for all tests."""
    return Steps(recipe)


@pytest.fixture(scope="module")
def on_the_simulator(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    """Train the last step of each recipe on the simulator, and return the losses by recipe, or a traceback."""
    python = os.environ.get("PORTING_SIMULATOR_PYTHON")
    if not python:
        pytest.skip("PORTING_SIMULATOR_PYTHON names no Python with a torch that captures")
    folder = tmp_path_factory.mktemp("simulator")
    cache = str(folder / "cache")
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PORTING_DEVICE": "sim", "PORTING_CACHE_DIR": cache}
    done = subprocess.run([python, "-c", ON_THE_SIMULATOR], cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "losses.json").read_text())


@pytest.mark.parametrize(
    ("recipe", "number"),
    [
        pytest.param(recipe, step.number, id=f"{recipe.name}-{step.path.stem}")
        for recipe in RECIPES
        for step in recipe.steps
    ],
)
def test_a_step_trains(recipe, number):
    losses = steps_of(recipe).losses(number, NUM_STEPS)

    assert len(losses) == NUM_STEPS
    assert all(math.isfinite(loss) for loss in losses)


@pytest.mark.parametrize(
    "recipe", [recipe for recipe in RECIPES if recipe.name not in OWN_NOISE], ids=lambda recipe: recipe.name
)
def test_the_last_step_trains_as_on_the_simulator(recipe, on_the_simulator):
    losses = steps_of(recipe).losses(recipe.steps[-1].number, NUM_STEPS)

    expected = on_the_simulator[recipe.name]
    assert isinstance(expected, list), expected
    assert losses == pytest.approx(expected, rel=TOLERANCES.get(recipe.name, TOLERANCE))
