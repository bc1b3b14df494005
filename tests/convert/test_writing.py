"""A conversion is written as a whole or not at all, and only over what somebody can get back."""

from __future__ import annotations

import os
import subprocess

import pytest

from porting.convert.writing import write_project
from porting.diagnostics import PortingError

BEFORE = {"train.py": "b = 'ä'\r\n".encode("latin-1"), "package/model.py": b"import torch\n"}
AFTER = {"train.py": "port = 'ä'\r\n".encode("latin-1"), "package/model.py": b"import porting\n", "new/loss.py": b"x\n"}


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "package").mkdir(parents=True)
    for name, content in BEFORE.items():
        (root / name).write_bytes(content)
    return root


def read_tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def git(root, *words):
    names = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *names, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def committed(project):
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "all")
    return project


def refuse(root, code, **changes):
    before = read_tree(root)
    with pytest.raises(PortingError) as caught:
        write_project(root, AFTER, before=BEFORE, **changes)
    assert caught.value.finding.code == code
    assert read_tree(root) == before
    return caught.value.finding


def test_all_files_are_written_byte_by_byte(project):
    write_project(project, AFTER, before=BEFORE)

    assert read_tree(project) == AFTER


def test_a_second_time_nothing_is_written(project):
    write_project(project, AFTER, before=BEFORE)
    inode = (project / "train.py").stat().st_ino

    write_project(project, AFTER, before=AFTER)

    assert (project / "train.py").stat().st_ino == inode


def test_permissions_and_links_are_kept(project):
    os.chmod(project / "train.py", 0o755)
    os.replace(project / "package" / "model.py", project / "package" / "real.py")
    (project / "package" / "model.py").symlink_to("real.py")

    write_project(project, AFTER, before=BEFORE)

    assert (project / "train.py").stat().st_mode & 0o777 == 0o755
    assert os.readlink(project / "package" / "model.py") == "real.py"
    assert (project / "package" / "real.py").read_bytes() == AFTER["package/model.py"]


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_a_file_that_has_changed_since_it_was_read_is_not_written(project):
    (project / "train.py").write_bytes(b"edited meanwhile")

    refuse(project, "X009")


def test_a_new_file_that_is_there_by_now_is_not_written(project):
    (project / "new").mkdir()
    (project / "new" / "loss.py").write_bytes(b"somebody else's")

    refuse(project, "X009")


def test_a_read_only_file_is_not_written(project):
    os.chmod(project / "train.py", 0o444)

    assert "chmod u+w" in str(refuse(project, "E029").help)


def test_a_committed_project_is_written(committed):
    write_project(committed, AFTER, before=BEFORE)

    assert (committed / "train.py").read_bytes() == AFTER["train.py"]


@pytest.mark.parametrize("is_staged", [False, True])
def test_changes_that_are_not_committed_are_not_written_over(is_staged, committed):
    (committed / "train.py").write_bytes(b"old")
    git(committed, "commit", "-am", "old")
    (committed / "train.py").write_bytes(BEFORE["train.py"])
    if is_staged:
        git(committed, "add", ".")

    finding = refuse(committed, "X026")

    assert "train.py" in finding.message
    assert "git stash" in str(finding.help)


def test_a_file_that_no_commit_knows_is_not_written_over(committed):
    git(committed, "rm", "-r", "--cached", "package")
    git(committed, "commit", "-m", "less")

    assert "model.py" in refuse(committed, "X026").message


def test_changes_of_other_files_do_not_matter(committed):
    (committed / "notes.txt").write_text("mine")
    (committed / "package" / "other.py").write_text("mine")

    write_project(committed, AFTER, before=BEFORE)

    assert (committed / "train.py").read_bytes() == AFTER["train.py"]


def test_a_project_that_no_commit_holds_is_written_inside_of_another_repository(project):
    (project.parent / "outer.txt").write_text("")
    git(project.parent, "init")
    git(project.parent, "add", "outer.txt")
    git(project.parent, "commit", "-m", "outer")

    write_project(project, AFTER, before=BEFORE)

    assert read_tree(project) == AFTER


# -- a project of its own ----------------------------------------------------------------------------------------------


def test_a_project_of_its_own_is_complete_and_the_old_one_stays(committed, tmp_path):
    (committed / "notes.txt").write_text("mine")
    (committed / "train.py").write_bytes(BEFORE["train.py"])

    linked = write_project(committed, AFTER, before=BEFORE, out=tmp_path / "far" / "ported")

    assert read_tree(tmp_path / "far" / "ported") == {**AFTER, "notes.txt": b"mine"}
    assert (committed / "train.py").read_bytes() == BEFORE["train.py"]
    assert linked == []
    assert os.listdir(tmp_path / "far") == ["ported"]


def test_what_is_there_already_is_not_written_over(project, tmp_path):
    (tmp_path / "ported").mkdir()

    refuse(project, "R002", out=tmp_path / "ported")


def test_a_copy_within_the_project_is_refused(project):
    refuse(project, "R002", out=project / "ported")
