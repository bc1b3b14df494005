"""Recipes are found by name or folder, and read without importing anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from porting.cli.main import main
from porting.diagnostics import PortingError
from porting.recipe_chain import find_recipe, read_recipes
from porting.recipe_chain.recipe_files import RECIPES_FOLDER


def test_a_folder_of_the_package_is_the_recipe_itself():
    assert find_recipe(str(RECIPES_FOLDER / "first_port")) == find_recipe("first_port")


def test_a_name_comes_before_a_folder_of_that_name(tmp_path, monkeypatch):
    (tmp_path / "first_port").mkdir()
    (tmp_path / "first_port" / "step_0_own.py").write_text("")
    monkeypatch.chdir(tmp_path)

    assert find_recipe("first_port").package == "porting.recipes.first_port"
    assert [step.name for step in find_recipe("./first_port").steps] == ["own"]


def test_a_folder_of_the_users_has_bare_module_names(tmp_path):
    (tmp_path / "step_0_own.py").write_text("raise SystemExit\n")

    recipe = find_recipe(str(tmp_path))

    assert (recipe.package, recipe.module_name("checks"), recipe.summary) == (None, "checks", "")


def test_two_steps_of_one_number_are_refused_by_name(tmp_path):
    for name in ("step_0_plain", "step_1_a", "step_1_b"):
        (tmp_path / f"{name}.py").write_text("")

    with pytest.raises(PortingError, match="R001") as caught:
        find_recipe(str(tmp_path))

    assert sorted(caught.value.finding.notes[0].split(", ")) == ["`step_1_a.py`", "`step_1_b.py`"]


def test_a_step_that_there_is_not_is_a_key_error():
    with pytest.raises(KeyError):
        find_recipe("first_port").step(99)


def test_an_unknown_name_is_an_error_with_all_names():
    with pytest.raises(PortingError) as caught:
        find_recipe("nothing")

    assert all(recipe.name in caught.value.finding.notes[0] for recipe in read_recipes())


def run_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **options)


@pytest.mark.slow
def test_a_copied_program_is_imported_by_itself(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])
    program = "import step_2_loss_in_forward as step; print(*step.train(2))"

    result = run_program("-c", program, cwd=tmp_path / "mine")

    assert len(result.stdout.split()) == 2, result.stderr


@pytest.mark.slow
def test_a_copied_program_runs_as_a_script(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])

    result = run_program(str(tmp_path / "mine" / "step_5_device_iterations.py"), cwd=tmp_path)

    assert re.fullmatch(r"loss 2\.\d+ -> 0\.\d+, test accuracy 0\.9[5-9]\d\n", result.stdout), result.stderr
