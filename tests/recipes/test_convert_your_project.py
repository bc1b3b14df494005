"""The steps of `convert_your_project` are what `porting convert` and `porting eject` write, line for line.

After a change of what they write, `python -m tests.recipes.test_convert_your_project` writes the steps again.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Dict

import pytest

pytest.importorskip("libcst")
from porting.convert.conversion import plan_conversion
from porting.convert.eject import eject_text
from porting.recipe_chain import find_recipe
from porting.recipe_chain.recipe_files import copy_recipe

RECIPE = find_recipe("convert_your_project")
PLAIN = "step_0_plain.py"
BARE, FULL = "from workload import", f"from porting.recipes.{RECIPE.name}.workload import"


def make_steps(folder: Path) -> Dict[str, str]:
    """Convert the first step in a copy of the recipe, in both styles, and eject it again."""
    copy_recipe(RECIPE, folder)
    made = {}
    for name, style in (("step_1_minimal.py", "minimal"), ("step_2_idiomatic.py", "idiomatic")):
        conversion = plan_conversion(str(folder), PLAIN, style=style)
        assert (conversion.left, list(conversion.changed)) == ([], [PLAIN])
        made[name] = conversion.changed[PLAIN]
    made["step_3_ejected.py"] = eject_text(made["step_2_idiomatic.py"])
    return {name: text.decode().replace(BARE, FULL) for name, text in made.items()}


def test_the_steps_are_what_the_tool_writes(tmp_path):
    made = make_steps(tmp_path / "copy")

    assert {name: (RECIPE.folder / name).read_text("utf-8") for name in made} == made


def test_what_is_ejected_is_the_plain_program():
    assert RECIPE.step(3).source == RECIPE.step(0).source


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as parent:
        for step, source in make_steps(Path(parent) / "copy").items():
            (RECIPE.folder / step).write_text(source, "utf-8")
