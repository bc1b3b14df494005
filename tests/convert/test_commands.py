"""The commands refuse what they cannot do before they begin, and tell a proof although nothing could be written."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main
from porting.convert import commands, work
from porting.convert.dry_run import DryRun
from porting.convert.work import Outcome
from porting.diagnostics import PortingError
from tests.convert.conversions import LOOP
from tests.convert.training_programs import LOADED

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "train.py").write_text(LOOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["convert", ".", "--out", "new"], "--out needs --write"),
        (["eject", ".", "--unproven"], "--unproven needs --write"),
        (["convert", ".", "--plan", "--write"], "--plan writes nothing"),
        (["convert", ".", "--instances", "--style", "minimal"], "--instances needs --style idiomatic"),
        (["convert", ".", "--run", "train.py 'a"], "--run is no command line, no closing quotation: train.py 'a"),
        (["eject", ".", "--port-args", '"'], "--port-args is no command line"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words, fault, capsys):
    assert main(words) == 2
    assert fault in capsys.readouterr().err


def test_a_python_without_the_simulator_is_told_which_one_it_takes(monkeypatch, capsys):
    monkeypatch.setattr(commands, "_LEAST_PYTHON", (99,))

    assert main(["convert", "."]) == 2
    assert "needs Python 3.9 or a later one" in capsys.readouterr().err


def test_a_notebook_is_refused_with_the_command_that_makes_a_script_of_it(project, capsys):
    (project / "train.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')

    assert main(["convert", "train.ipynb"]) == 2
    assert "is a notebook\n   = help: make a script of it: `jupyter nbconvert" in capsys.readouterr().err


def test_a_report_is_told_before_the_error_of_its_writing(monkeypatch, capsys):
    error = PortingError.of("X026", message="not committed", help="commit it")
    monkeypatch.setattr(work, "convert_project", lambda _arguments: Outcome("the report", "", 1, error))

    assert main(["convert", "."]) == 2
    out, err = capsys.readouterr()
    assert (out, "X026" in err) == ("the report\n", True)


def test_what_cannot_be_read_is_left_by_an_ejection(project, capsys):
    (project / "broken.py").write_text("import porting\ndef f(:\n")

    assert main(["eject", "train.py"]) == 1
    assert "broken.py:2: the file cannot be read" in capsys.readouterr().out


def test_a_conversion_that_is_only_planned_changes_nothing(project, capsys):
    assert main(["convert", ".", "--plan"]) == 0
    assert "not run  behavioral" in capsys.readouterr().out
    assert (project / "train.py").read_text() == LOOP


def test_what_cannot_be_written_is_refused_before_it_is_proved(project, monkeypatch, capsys):
    (project / "train.py").chmod(0o444)
    monkeypatch.setattr(work, "run_program", lambda *_words, **_settings: DryRun())
    monkeypatch.setattr(work, "prove_conversion", None)

    assert main(["convert", ".", "--run", "train.py", "--write"]) == 2
    assert "`train.py` is read-only" in capsys.readouterr().err


def test_another_style_is_said_not_to_be_taken_with_the_place(project, capsys):
    (project / "train.py").write_text(LOOP.replace("optimizer.step()", "if step: optimizer.step()"))

    assert main(["convert", ".", "--plan"]) == 0
    out = capsys.readouterr().out
    assert "style minimal" in out
    assert "note: the idiomatic style was not taken: train.py:11: `optimizer.step()` is not made in each turn" in out


def test_several_instances_are_named_in_the_next_commands(project, capsys):
    (project / "train.py").write_text(LOADED)

    assert main(["convert", ".", "--instances", "--plan", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert "--instances" in plan["commands"]["write"].split()
    assert "two instances" in plan["launches"]


def test_no_other_style_is_taken_for_several_instances(capsys):
    assert main(["convert", ".", "--instances", "--plan"]) == 1
    assert "style idiomatic" in capsys.readouterr().out
