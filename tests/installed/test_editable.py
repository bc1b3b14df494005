"""`pip install -e .` makes `porting` importable and nothing else, and leads editors to the sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.installed.environments import ROOT, install, make_environment, run

NAMES_IN_A_CLONE = ("models", "adapters", "recipes", "tests", "docs", "conftest")


def test_the_folder_that_is_installed_holds_a_link_to_the_package_and_nothing_else():
    found = [path.name for path in (ROOT / "src").iterdir() if path.suffix != ".egg-info"]

    assert found == ["porting"]
    assert os.readlink(ROOT / "src" / "porting") == "../porting"


@pytest.fixture(scope="module")
def python(clone, tmp_path_factory):
    """Give the Python of an environment with an editable install of a clone."""
    python = make_environment(tmp_path_factory.mktemp("editable") / "environment")
    install(python, "--editable", clone)
    return python


@pytest.mark.slow
def test_an_install_adds_a_path_with_the_package_alone(python, clone):
    (written,) = Path(python).parents[1].glob("lib/python3*/site-packages/*ipu_porting*.pth")

    (path,) = written.read_text("utf-8").splitlines()

    assert path == str(clone / "src")
    # setuptools leaves what it knows of the package, which nothing imports
    assert [name for name in os.listdir(path) if not name.endswith(".egg-info")] == ["porting"]


@pytest.mark.slow
def test_the_sources_are_those_of_the_clone(python, clone, tmp_path):
    file = run([python, "-c", "import porting; print(porting.__file__)"], cwd=tmp_path).strip()

    assert os.path.samefile(file, clone / "porting" / "__init__.py")


@pytest.mark.slow
@pytest.mark.parametrize("command", [(), ("-m", "porting", "run")], ids=["plain", "porting run"])
@pytest.mark.parametrize("name", NAMES_IN_A_CLONE)
def test_a_program_has_its_own_folder_of_any_name(name, command, python, tmp_path):
    (tmp_path / name).mkdir()
    (tmp_path / name / "net.py").write_text("X = 7\n")
    (tmp_path / "train.py").write_text(f"from {name}.net import X\nprint('found', X)\n")

    assert run([python, *command, "train.py"], cwd=tmp_path).splitlines()[0] == "found 7"
