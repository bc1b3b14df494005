"""The pictures of every recipe are shown by its pages, and can be drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import List

import pytest

from porting.recipe_chain import Recipe

from .chains import each_recipe, steps_of, with_extras

MAX_PICTURE_BYTES = 60_000
# a line has two ends, also where a step has twice the images
NUM_STEPS = 4


def pictures_of(recipe: Recipe) -> List[Path]:
    return sorted((recipe.folder / "pictures").glob("*.png"))


@each_recipe
def test_the_pages_show_the_pictures_which_are_small(recipe):
    pages = "".join(page.read_text(encoding="utf-8") for page in recipe.folder.glob("*.md"))

    assert pictures_of(recipe) != []
    assert [path.name for path in pictures_of(recipe) if f"(pictures/{path.name})" not in pages] == []
    assert [path.name for path in pictures_of(recipe) if path.stat().st_size > MAX_PICTURE_BYTES] == []


@pytest.mark.slow
@each_recipe
def test_the_pictures_can_be_drawn_again(recipe, tmp_path, monkeypatch):
    with_extras(recipe)
    pictures = steps_of(recipe).load("pictures")
    # what is learnt matters to readers alone
    monkeypatch.setattr(pictures, "NUM_STEPS", NUM_STEPS)
    if recipe.name == "cosmictagger":
        # the published network's memory is looked at by tests of the memory look
        monkeypatch.setattr(pictures.step_6_memory_look, "a21", pictures.step_6_memory_look.small)

    drawn = pictures.draw(tmp_path)

    assert sorted(path.name for path in drawn) == [path.name for path in pictures_of(recipe)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in pictures_of(recipe)]
