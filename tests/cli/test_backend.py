"""`porting backend` names backends, and tells whether a module can be one."""

from __future__ import annotations

import json

import pytest

from porting import register_backend
from porting.cli.main import main
from porting.options import devices


@pytest.fixture(autouse=True)
def no_backends(monkeypatch):
    monkeypatch.setattr(devices, "_REGISTERED", {})


def test_all_devices_are_listed(capsys):
    register_backend("mine", "porting.simulator")

    assert main(["backend", "list"]) == 0
    assert capsys.readouterr().out.split() == ["auto", "ipu", "sim", "mine"]
    assert main(["backend", "--format", "json", "list"]) == 0
    assert json.loads(capsys.readouterr().out) == ["auto", "ipu", "sim", "mine"]


@pytest.mark.parametrize("name", ["porting.simulator", "mine"])
def test_a_module_or_a_registered_name_is_checked(name, capsys):
    register_backend("mine", "porting.simulator")

    assert main(["backend", "check", name]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ok     names"
    assert lines[-1] == f"14 checks of {name}: all hold"


def test_a_module_of_the_working_directory_is_found_and_its_faults_are_said(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_module.py").write_text("Options = object\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    assert main(["backend", "--format", "json", "check", "own_module"]) == 1

    (outcome,) = json.loads(capsys.readouterr().out)
    assert outcome["name"] == "names"
    assert outcome["fault"].startswith("missing: trainingModel, ")


def test_what_cannot_be_imported_is_wrong_usage(capsys):
    assert main(["backend", "check", "no_such_module"]) == 2
    assert "no_such_module cannot be imported" in capsys.readouterr().err
