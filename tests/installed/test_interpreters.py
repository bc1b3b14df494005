"""`make pythons` says of each Python what came of it, and what is missing is no failure."""

from __future__ import annotations

import pytest

from tests.installed import interpreters
from tests.installed.interpreters import OWN, Base, NotTestedError, find_base


@pytest.fixture
def bare_machine(monkeypatch, tmp_path):
    """A machine without any Python but this one, and with an empty cache."""
    monkeypatch.setattr(interpreters, "find_python", lambda _version: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_python_that_runs_needs_no_environment(bare_machine):
    assert find_base(OWN, makes=False) == Base()


def test_a_python_that_is_not_here_is_told_with_its_variable(bare_machine):
    with pytest.raises(NotTestedError, match="it is not on this machine: install it, or name it by PYTHON39="):
        find_base("3.9", makes=True)


@pytest.mark.parametrize("version", ["3.8", "3.9"])
def test_an_environment_is_made_only_when_asked_for(version, bare_machine, monkeypatch):
    monkeypatch.setattr(interpreters, "find_python", lambda _version: "/nowhere/python")

    with pytest.raises(NotTestedError, match="its environment is not made: `make pythons`"):
        find_base(version, makes=False)


def test_an_environment_that_cannot_be_made_is_told(bare_machine, monkeypatch):
    monkeypatch.setattr(interpreters, "find_python", lambda _version: "/nowhere/python")

    with pytest.raises(NotTestedError, match="its environment could not be made: .*/nowhere/python"):
        find_base("3.9", makes=True)


def outcomes_of(try_wheel, monkeypatch, capsys):
    monkeypatch.setattr(interpreters, "copy_clone", lambda folder: folder)
    monkeypatch.setattr(interpreters, "build_wheel", lambda clone, _folder: clone)
    monkeypatch.setattr(interpreters, "VERSIONS", ("3.8", OWN))
    monkeypatch.setattr(interpreters, "try_wheel", try_wheel)
    status = interpreters.main([])
    return status, capsys.readouterr().out


def test_each_python_has_a_line(bare_machine, monkeypatch, capsys):
    status, lines = outcomes_of(lambda _wheel, _folder, _base: "", monkeypatch, capsys)

    assert (status, lines.splitlines()) == (
        0,
        [
            "python 3.8: not tested, it is not on this machine: install it, or name it by PYTHON38=",
            f"python {OWN}: the wheel trains the ten lines",
        ],
    )


def test_a_wheel_that_fails_is_a_failure(bare_machine, monkeypatch, capsys):
    def fail(_wheel, _folder, _base):
        raise AssertionError("No module named 'tqdm'")

    status, lines = outcomes_of(fail, monkeypatch, capsys)

    assert status == 1
    assert lines.endswith(f"python {OWN}: FAILED\nNo module named 'tqdm'\n")
