"""What can go wrong in a recipe goes wrong as its page shows, with the cure."""

from __future__ import annotations

import os
from typing import Any, Dict
from unittest import mock

import pytest

from porting.recipe_chain import Recipe
from tests.docs.page_blocks import blocks_of, commands_of, run, without_measures

from .chains import QUICK_RECIPE, RECIPES, each_recipe, with_extras

TROUBLE_PAGE = "what-can-go-wrong.md"


def marked_slow(recipe: Recipe) -> Any:
    """Make a recipe a parameter that is slow unless it is the quick one."""
    return pytest.param(recipe, id=recipe.name, marks=[] if recipe.name == QUICK_RECIPE else [pytest.mark.slow])


@pytest.mark.parametrize("recipe", [marked_slow(recipe) for recipe in RECIPES.values()])
def test_what_can_go_wrong_goes_wrong_as_the_page_shows(recipe, tmp_path, monkeypatch, request):
    with_extras(recipe)
    page = recipe.folder / TROUBLE_PAGE
    if "sys.executable" in page.read_text(encoding="utf-8"):
        request.getfixturevalue("programs_have_simulator")
    monkeypatch.chdir(tmp_path)
    # A page may set variables, as a launcher does; no later test starts among instances that do not exist.
    monkeypatch.setattr(os, "environ", os.environ)
    names: Dict[str, Any] = {"__name__": "__main__"}

    # A page sets variables, as a launcher does: they end with it, or the next test is one of two instances.
    with mock.patch.dict(os.environ):
        for block in blocks_of(page):
            if block.language == "python":
                printed, code = run(block, names)

                assert code == block.raises, block.source
                if block.output is not None:
                    assert without_measures(printed) == without_measures(block.output), block.source


@each_recipe
def test_the_page_of_troubles_shows_mistake_error_and_cure(recipe):
    troubles = [block for block in blocks_of(recipe.folder / TROUBLE_PAGE) if block.raises or block.says]

    assert len(troubles) >= 2
    assert [block.source for block in troubles if block.output is None] == []


def test_the_command_of_a_block_is_read_with_its_continuation_lines(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```console\n$ porting recipe \\\n    list  # all\noutput\n```\n")

    assert [command.split() for command in commands_of(page)] == [["porting", "recipe", "list"]]
