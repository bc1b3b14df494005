"""A second tree of a project has all of it: changed files, copies or links, and links that lead within it."""

from __future__ import annotations

import os

import pytest

from porting.support import project_copies
from porting.support.project_copies import copy_project, find_project, link_project


@pytest.fixture
def project(tmp_path):
    """A package, a script that is a link, data, and data that lie elsewhere."""
    root = tmp_path / "project"
    for folder in ("package", "data", "loop"):
        (root / folder).mkdir(parents=True)
    (root / "package" / "model.py").write_text("import torch\n")
    (root / "package" / "other.py").write_text("")
    (root / "data" / "large.bin").write_bytes(b"1" * 2000)
    (root / "loop" / "above").symlink_to("..")
    (root / "train.py").symlink_to("package/model.py")
    (tmp_path / "elsewhere").mkdir()
    (root / "images").symlink_to(tmp_path / "elsewhere")
    return root


CHANGED = {"package/model.py": b"import porting\r\n", "package/new/loss.py": b""}


@pytest.mark.parametrize("is_copy", [False, True])
def test_a_tree_has_changed_files_and_everything_else(is_copy, project, tmp_path):
    tree = tmp_path / "tree"
    if is_copy:
        copy_project([project], tree, most_bytes=1000, changed=CHANGED)
    else:
        link_project(project, CHANGED, tree)

    assert (tree / "package" / "model.py").read_bytes() == b"import porting\r\n"
    assert (tree / "train.py").resolve() == tree / "package" / "model.py"
    assert (tree / "package" / "new" / "loss.py").exists()
    assert (tree / "package" / "other.py").exists()
    assert (tree / "data" / "large.bin").read_bytes() == b"1" * 2000
    assert (tree / "images").resolve() == tmp_path / "elsewhere"
    assert (project / "package" / "model.py").read_text() == "import torch\n"


def test_a_file_that_is_changed_by_the_name_of_a_link_is_changed_where_it_lies(project, tmp_path):
    link_project(project, {"train.py": b"changed"}, tmp_path / "tree")

    assert (tmp_path / "tree" / "train.py").is_symlink()
    assert (tmp_path / "tree" / "package" / "model.py").read_bytes() == b"changed"


def test_a_copy_has_folders_of_its_own_and_links_to_large_files(project, tmp_path):
    linked = copy_project([project], tmp_path / "copy", most_bytes=1000, changed={})

    assert linked == ["data/large.bin"]
    assert not (tmp_path / "copy" / "data").is_symlink()
    assert not (tmp_path / "copy" / "package" / "other.py").is_symlink()
    assert (tmp_path / "copy" / "loop" / "above").resolve() == tmp_path / "copy"


def test_a_copy_of_links_to_a_project_is_one_of_the_project(project, tmp_path):
    link_project(project, CHANGED, tmp_path / "tree")

    copy_project([tmp_path / "tree", project], tmp_path / "copy", most_bytes=1000, changed={})

    assert not (tmp_path / "copy" / "data").is_symlink()
    assert not (tmp_path / "copy" / "package" / "other.py").is_symlink()
    assert (tmp_path / "copy" / "train.py").resolve() == tmp_path / "copy" / "package" / "model.py"


def test_folders_of_many_files_are_links(project, tmp_path, monkeypatch):
    monkeypatch.setattr(project_copies, "_MOST_IN_FOLDER", 1)

    assert copy_project([project], tmp_path / "copy", most_bytes=1000, changed={}) == ["package", "data/large.bin"]


def test_files_keep_their_permissions(project, tmp_path):
    os.chmod(project / "package" / "model.py", 0o750)

    link_project(project, CHANGED, tmp_path / "tree")

    assert (tmp_path / "tree" / "package" / "model.py").stat().st_mode & 0o777 == 0o750


def test_a_folder_lies_in_the_git_project_above_it(tmp_path):
    (tmp_path / "project" / "programs" / "first").mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()

    assert find_project(tmp_path / "project" / "programs" / "first") == tmp_path / "project"
    assert find_project(tmp_path) == tmp_path
