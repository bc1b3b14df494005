"""A file that cannot be written is refused before the work, with its name, and no verb makes folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.cli.main import main
from porting.cli.output_files import explain_write_errors, require_folders, write_output
from porting.diagnostics import ExecutableError


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ExecutableError, match="there is no folder") as caught:
        require_folders(None, tmp_path / "x", tmp_path / "nowhere" / "x")

    assert caught.value.code == "E029"


def test_a_file_is_written_as_a_whole(tmp_path):
    write_output(tmp_path / "x", b"all of it")

    assert (tmp_path / "x").read_bytes() == b"all of it"


def test_what_the_system_refuses_is_a_finding(tmp_path):
    with pytest.raises(ExecutableError, match="Is a directory"), explain_write_errors(tmp_path / "x"):
        raise IsADirectoryError(21, "Is a directory")


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "PROGRAM", "--json", "nowhere/x"],
        ["bench", "PROGRAM", "--html", "nowhere/x"],
        ["check", "PROGRAM", "--html", "nowhere/x"],
        ["compile", "PROGRAM", "--dump-graph", "text=nowhere/x"],
        ["export", "PROGRAM", "-o", "nowhere/x"],
        ["graph", "PROGRAM", "-o", "nowhere/x"],
        ["plan", "PROGRAM", "--html", "nowhere/x"],
        ["report", "PROGRAM", "--html", "nowhere/x"],
        ["trace", "PROGRAM", "-o", "nowhere/x"],
        ["verify", "PROGRAM", "--out", "nowhere/x"],
        ["verify", "PROGRAM", "--html", "nowhere/x"],
    ],
    ids=" ".join,
)
def test_no_verb_makes_a_folder_or_runs_the_program(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    Path("unrun_of_test.py").write_text("def make():\n    open('it has run', 'w').close()\n")

    assert main([word.replace("PROGRAM", "unrun_of_test.py:make") for word in words]) == 2

    assert "error[E029]: `nowhere/x` cannot be written: there is no folder `nowhere`" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["unrun_of_test.py"]
