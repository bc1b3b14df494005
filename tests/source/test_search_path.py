"""Imports are looked for in the folders in which Python would, and in their order."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.source import library, search_path
from porting.source.search_path import Folders, is_declared, is_installed, make_search_path

NAMES = st.sampled_from(["aa", "bb", "cc"])
TREES = st.sets(
    st.one_of(
        st.builds("{}/{}.py".format, st.sampled_from(["r1", "r2"]), NAMES),
        st.builds("{}/{}/{}.py".format, st.sampled_from(["r1", "r2"]), NAMES, st.one_of(NAMES, st.just("__init__"))),
        st.builds("{}/{}/{}/{}.py".format, st.sampled_from(["r1", "r2"]), NAMES, NAMES, st.just("__init__")),
        st.builds("{}/{}/{}/{}.py".format, st.sampled_from(["r1", "r2"]), NAMES, NAMES, NAMES),
    ),
    min_size=1,
    max_size=12,
)


def find_as_python(name, roots):
    """Find the files of `a`, `a.b` and `a.b.c` with Python's own finder, which runs nothing."""
    found, folders = [], roots
    for part in name.split("."):
        spec = PathFinder.find_spec(part, folders) if folders else None
        if spec is None:
            break
        found.append(spec.origin or "")
        folders = list(spec.submodule_search_locations or ())
    return found


@settings(max_examples=150, deadline=None)
@given(tree=TREES, name=st.lists(NAMES, min_size=1, max_size=3).map(".".join))
def test_a_module_is_found_where_python_finds_it(tmp_path_factory, tree, name):
    root = tmp_path_factory.mktemp("tree")
    for file in tree:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("")
    roots = [str(root / "r1"), str(root / "r2")]

    spots = Folders().locate(name.split("."), roots)

    assert [spot.path for spot in spots] == find_as_python(name, roots)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Work in a project with a script in a folder of its own."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["unheard-of"]\n')
    (tmp_path / "scripts").mkdir()
    return tmp_path


def test_the_scripts_own_folder_comes_first_and_the_repository_after_what_was_given(project, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["given", str(project)]))

    search = make_search_path("scripts/train.py")

    assert search.folders == ["scripts", "given", str(project)]
    assert search.guessed[:4] == ("scripts", "scripts/src", "", "src")


def test_no_folder_above_the_repository_is_searched(project):
    assert not any(folder.startswith(os.pardir) for folder in make_search_path("scripts/train.py").guessed)


def test_of_a_package_the_folder_above_is_searched(project):
    (project / "scripts" / "__init__.py").write_text("")

    assert make_search_path("scripts/train.py").folders == ["scripts", ""]


def test_of_a_repository_that_is_a_package_the_folder_above_is_searched_and_none_higher(tmp_path):
    repository = tmp_path / "above" / "own"
    (repository / ".git").mkdir(parents=True)
    (repository / "__init__.py").touch()

    path = make_search_path(str(repository / "train.py"))

    searched = {os.path.abspath(folder) for folder in (*path.folders, *path.guessed)}
    assert str(repository.parent) in searched
    assert str(tmp_path) not in searched


def test_a_requirement_is_a_library(project):
    search = make_search_path("scripts/train.py")

    assert is_declared("unheard_of", search.repository)
    assert not is_declared("heard_of", search.repository)


def test_what_is_installed_to_be_edited_is_read_and_not_run(tmp_path, monkeypatch):
    packages, first, second = tmp_path / "site-packages", tmp_path / "first", tmp_path / "second" / "src"
    for folder in (packages, first, second / "pkg"):
        folder.mkdir(parents=True)
    (packages / "first.pth").write_text(f"# a comment\nimport no_such_module\n{first}\n")
    finder = f"raise SystemExit\nMAPPING: dict[str, str] = {{'pkg': {str(second / 'pkg')!r}}}\n"
    (packages / "__editable___pkg_1_finder.py").write_text(finder)
    monkeypatch.setattr(sys, "path", [str(packages)])

    assert search_path.list_edited() == (str(first), str(second))


def test_a_library_is_known_by_its_folder_or_its_name():
    assert is_installed("torch")
    assert not is_installed("no_such_library")
    assert {"wandb", "cv2", "hydra"} <= library.NAMES["libraries"]


@pytest.mark.parametrize("name", ["models", "utils", "data", "engine", "config", "train", "losses", "lib", "src"])
def test_names_that_programs_give_their_own_files_are_no_libraries(name):
    assert name not in library.NAMES["libraries"]


def test_a_compiled_module_is_found_and_has_no_source(tmp_path):
    suffix = search_path.EXTENSION_SUFFIXES[0]
    Path(tmp_path, f"fast{suffix}").write_bytes(b"")

    (spot,) = Folders().locate(["fast"], [str(tmp_path)])
    assert spot.is_compiled
