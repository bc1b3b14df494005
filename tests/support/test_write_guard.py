"""What a program writes in a copy of its project stays there, also where the copy leads to the project by links."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# a guard lasts as long as its process
PROGRAM = """\
import os, shutil, sqlite3, sys
from pathlib import Path
from porting.support.write_guard import WriteGuard
copy, root = Path(sys.argv[1]), Path(sys.argv[2])
os.chdir(copy)
guard = WriteGuard(copy, [root])
try:
    exec(sys.argv[3])
except PermissionError as error:
    print(error.strerror)
"""
ACTIONS = {
    "write": "open('data/log.txt', 'w').write('new')",
    "append": "open('data/log.txt', 'a').write('new')",
    "a new file": "open('data/more.txt', 'w').write('new')",
    "in a deeper folder": "open('data/deep/notes.txt', 'w').write('new')",
    "remove": "os.remove('data/log.txt')",
    "rename": "os.rename('data/log.txt', 'data/old.txt')",
    "replace": "Path('own.txt').write_text('new'); os.replace('own.txt', 'data/log.txt')",
    "make a folder": "os.mkdir('data/runs')",
    "remove a tree": "shutil.rmtree('data/deep')",
    "truncate": "os.truncate('data/log.txt', 0)",
    "by a descriptor": "os.write(os.open('data/log.txt', os.O_WRONLY), b'new')",
    "a database": "sqlite3.connect('data/base.db').execute('create table t (a)')",
    "a link to a file": "open('log.txt', 'r+').write('new')",
    "before a library": "guard.free('data/log.txt'); assert not os.path.islink('data/log.txt')",
}


@pytest.fixture
def folders(tmp_path):
    root, copy = tmp_path / "project", tmp_path / "copy"
    (root / "data" / "deep").mkdir(parents=True)
    (root / "data" / "log.txt").write_text("old")
    (root / "data" / "deep" / "notes.txt").write_text("old")
    copy.mkdir()
    (copy / "data").symlink_to(root / "data")
    (copy / "log.txt").symlink_to(root / "data" / "log.txt")
    return root, copy


@pytest.fixture
def do(folders):
    root, copy = folders
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}

    def do(action):
        command = [sys.executable, "-c", PROGRAM, str(copy), str(root), action]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    return do


def read_tree(root):
    return {str(path.relative_to(root)): path.is_file() and path.read_text() for path in root.rglob("*")}


@pytest.mark.parametrize("action", ACTIONS)
def test_what_is_written_stays_in_the_copy(action, folders, do):
    before = read_tree(folders[0])

    assert do(ACTIONS[action]) == ""

    assert read_tree(folders[0]) == before


def test_what_was_there_is_appended_to(folders, do):
    do(ACTIONS["append"])

    assert (folders[1] / "data" / "log.txt").read_text() == "oldnew"


def test_what_is_read_stays_a_link(folders, do):
    assert do("print(open('data/log.txt').read())") == "old"

    assert (folders[1] / "data").is_symlink()


def test_the_project_itself_is_not_written(folders, do):
    before = read_tree(folders[0])

    assert do(f"open({str(folders[0] / 'data' / 'log.txt')!r}, 'w')") == "a proof leaves the project as it is"

    assert read_tree(folders[0]) == before


def test_what_lies_elsewhere_is_written(do, tmp_path):
    do(f"open({str(tmp_path / 'else.txt')!r}, 'w').write('new')")

    assert (tmp_path / "else.txt").read_text() == "new"
