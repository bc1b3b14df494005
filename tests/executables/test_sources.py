"""The record of a program holds the user's files, arguments and settings, no library and no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest

from porting.executables.sources import list_user_files, record_sources

PROGRAM = """
import json
import sys

import torch

import settings
from porting.executables.sources import record_sources

print(json.dumps(record_sources()))
"""


@pytest.fixture
def recorded(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "settings.py").write_text("dropout = 0.1\n")
    (tmp_path / "conf.yaml").write_text("lr: 0.1\n")
    words = ["train.py", "--config", "conf.yaml", "--api-key", "abc", "--token=abc", "--password"]
    environment = {**os.environ, "PORTING_ENGINE": "aot", "HOME_SECRET": "abc", "POPTORCH_TOKEN": "abc"}
    result = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


@pytest.mark.slow
def test_files_are_those_of_the_user_the_main_program_s_first(recorded, tmp_path):
    names = [os.path.relpath(path, tmp_path) for path in recorded["files"]]

    assert names == ["train.py", "settings.py", "conf.yaml"]
    assert recorded["program"] == str(tmp_path / "train.py")
    assert recorded["files"][str(tmp_path / "settings.py")] == "dropout = 0.1\n"


def test_a_folder_that_was_removed_under_the_program_is_no_error(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert record_sources()["folder"] == ""


def test_a_module_that_was_made_up_is_no_file_of_the_user():
    made_up = types.ModuleType("made_up")
    made_up.__file__ = "_made_up.py"

    assert not [path for path in list_user_files({"made_up": made_up}) if path.endswith("_made_up.py")]


@pytest.mark.slow
def test_secrets_are_left_out(recorded):
    assert "abc" not in json.dumps(recorded)
    assert recorded["arguments"][3:] == ["--api-key", "***", "--token=***", "--password"]


@pytest.mark.slow
def test_settings_of_the_environment_are_recorded(recorded):
    assert recorded["environment"]["PORTING_ENGINE"] == "aot"


def test_files_of_operators_that_were_typed_in_are_recorded_from_what_was_typed():
    import linecache

    linecache.cache["<cell 3>"] = (9, None, ["dropout = 0.3\n"], "<cell 3>")
    try:
        assert record_sources(["<cell 3>"])["files"]["<cell 3>"] == "dropout = 0.3\n"
    finally:
        del linecache.cache["<cell 3>"]


def test_libraries_are_no_user_s_files():
    files = list_user_files(sys.modules)

    assert [file for file in files if "site-packages" in file or "/torch/" in file] == []


def test_a_file_that_is_too_large_is_left_out(tmp_path):
    (tmp_path / "large.py").write_text("x = 1\n" * 100_000)

    assert str(tmp_path / "large.py") not in record_sources([str(tmp_path / "large.py")])["files"]


def test_a_file_that_is_gone_or_no_text_is_left_out(tmp_path):
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00")

    recorded = record_sources([str(tmp_path / "gone.py"), str(tmp_path / "binary.py")])

    assert [path for path in recorded["files"] if path.startswith(str(tmp_path))] == []
