"""Networks of recipes that are smaller than those of their stories, for tests of what no size has a part in."""

from __future__ import annotations

import functools
from typing import Any, List

import pytest

from porting.data.events import NeutrinoEvents
from porting.recipe_chain import Recipe
from porting.recipes.cosmictagger import workload as cosmictagger
from porting.recipes.resnet50 import workload as resnet50

from .chains import steps_of

SETTINGS = {"resnet50": [resnet50.Setup(width=2, image_size=16, num_classes=4, num_images=64, batch_size=16)]}


@pytest.fixture
def train_small(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a function that trains the last step of a recipe; networks for pictures have small ones and few channels."""
    monkeypatch.setitem(cosmictagger.SMALL, "depth", 2)
    events = functools.partial(NeutrinoEvents, height=32, width=48)
    monkeypatch.setattr(cosmictagger, "NeutrinoEvents", lambda count, *, seed, **_size: events(count, seed=seed))

    def train(recipe: Recipe, num_steps: int) -> List[float]:
        more = SETTINGS.get(recipe.name, [])
        return steps_of(recipe).call(recipe.steps[-1].number, lambda step: list(step.train(num_steps, *more)))

    return train
