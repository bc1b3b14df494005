"""A Python that works is found, and folders of the cache are made once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import kept_environments
from tests.kept_environments import find_python, key_of, made_once

SHIM = "#!/bin/sh\necho 'command not found' >&2\nexit 127\n"
PYTHON_38 = "#!/bin/sh\necho 3.8 /usr\n"
PYTHON_311 = "#!/bin/sh\necho 3.11 /usr\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Give a function that installs commands on a machine without any Python 3.8."""
    monkeypatch.delenv("PYTHON38", raising=False)
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr(kept_environments.shutil, "which", lambda name: str(tmp_path / "bin" / name))

    def install(file, text):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    return install


def test_no_python_is_found_where_there_is_none(machine):
    assert find_python("3.8") is None


def test_a_python_on_the_path_is_found(machine):
    python = machine("bin/python3.8", PYTHON_38)

    assert find_python("3.8") == python


def test_a_shim_that_fails_is_passed_over_for_pyenvs_own(machine):
    machine("bin/python3.8", SHIM)
    machine("pyenv/versions/3.8.1/bin/python", SHIM)
    python = machine("pyenv/versions/3.8.18/bin/python", PYTHON_38)

    assert find_python("3.8") == python


def test_the_variable_comes_first_and_another_version_does_not_count(machine, monkeypatch):
    other = machine("bin/python3.8", PYTHON_38)
    monkeypatch.setenv("PYTHON38", machine("mine/python", PYTHON_311))

    assert find_python("3.8") == other


# -- the cache -------------------------------------------------------------------------------------------------------


def make(folder):
    folder.mkdir()
    (folder / "made").write_text("whole")


def fail(_folder):
    raise AssertionError("it is there already")


def test_a_folder_is_made_once(tmp_path):
    made_once(tmp_path / "a", make)
    made_once(tmp_path / "a", fail)

    assert (tmp_path / "a" / "made").read_text() == "whole"


def test_a_folder_whose_making_was_interrupted_is_begun_anew(tmp_path):
    def interrupted(folder):
        folder.mkdir()
        (folder / "made").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "a", interrupted)
    made_once(tmp_path / "a", make)

    assert (tmp_path / "a" / "made").read_text() == "whole"


def test_a_folder_that_has_been_damaged_is_made_anew(tmp_path):
    made_once(tmp_path / "a", make)
    (tmp_path / "a" / "made").write_text("damaged")

    made_once(tmp_path / "a", make, is_sound=lambda folder: (folder / "made").read_text() == "whole")

    assert (tmp_path / "a" / "made").read_text() == "whole"


def test_two_at_once_make_it_once(tmp_path):
    making, may_end, made = threading.Event(), threading.Event(), []

    def slow(folder):
        making.set()
        may_end.wait(10)
        make(folder)
        made.append(folder)

    first = threading.Thread(target=made_once, args=(tmp_path / "a", slow))
    first.start()
    making.wait(10)
    second = threading.Thread(target=made_once, args=(tmp_path / "a", slow))
    second.start()
    may_end.set()
    first.join(10)
    second.join(10)

    assert made == [tmp_path / "a"]


def test_a_process_that_dies_gives_the_lock_free(tmp_path):
    program = (
        "import os, sys, pathlib; from tests.kept_environments import made_once\n"
        "made_once(pathlib.Path(sys.argv[1]), lambda folder: (folder.mkdir(), os._exit(3)))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "a")], cwd=Path(__file__).parents[1])

    made_once(tmp_path / "a", make)

    assert done.returncode == 3
    assert (tmp_path / "a" / "made").exists()


def test_the_key_of_an_environment_is_that_of_its_requirements(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("torch==2.0.1")
    before = key_of([file], "3.8")
    file.write_text("torch==2.0.0")

    assert len({before, key_of([file], "3.8"), key_of([file], "3.9")}) == 3
