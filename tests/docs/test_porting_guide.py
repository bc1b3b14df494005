"""The porting guide leads to steps, pages and recipes that exist, and leaves out no recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from porting.diagnostics import CODES
from porting.recipe_chain import find_recipe, read_recipes

GUIDE = Path(__file__).parents[2] / "docs" / "porting-guide.md"
TEXT = GUIDE.read_text(encoding="utf-8")
STEPS = re.findall(r"\[(\w+) (\d+)\]\(\.\./porting/recipes/(\w+)/(\w+)\.py\)", TEXT)
PARTS = re.split(r"^\*\*(\d+)\. ", TEXT, flags=re.MULTILINE)[1:]


def test_there_are_ten_steps_in_order():
    assert PARTS[::2] == [str(number) for number in range(1, 11)]


@pytest.mark.parametrize("part", PARTS[1::2], ids=PARTS[::2])
def test_a_step_is_shown_in_a_recipe_or_proved_by_a_program(part):
    assert "Shown in: [" in part or "the program below" in part


@pytest.mark.parametrize("part", PARTS[3::2], ids=PARTS[2::2])
def test_a_step_says_which_error_tells_that_it_was_forgotten(part):
    assert re.search(r"^Forgotten: \[", part, re.MULTILINE)


@pytest.mark.parametrize(("name", "number", "folder", "stem"), STEPS)
def test_a_link_to_a_step_leads_to_the_step_that_it_names(name, number, folder, stem):
    assert name == folder
    assert find_recipe(name).step(int(number)).path.stem == stem


def test_a_link_to_a_code_leads_to_its_page():
    links = re.findall(r"\[(\w+)\]\(\.\./porting/diagnostics/pages/(\w+)\.md\)", TEXT)

    assert len(links) > 40
    assert [link for link in links if link[0] != link[1] or link[0] not in CODES] == []


def test_every_recipe_has_its_place_in_the_guide():
    table = TEXT.split("## Where to look")[1]

    assert [recipe.name for recipe in read_recipes() if f"[{recipe.name}](" not in table] == []
