"""A shell that asks what may come next is told verbs, actions, options, choices and names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from porting.cli.completion import read_typed_words
from porting.cli.main import main
from porting.engines import list_choices

needs_argcomplete = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import argcomplete"], capture_output=True).returncode != 0,
    reason="needs the extra `completion`",
)


@pytest.fixture
def ask(tmp_path):
    """Ask the command as a shell does: for the line before the cursor it is told the words that may stand there."""

    def give(line: str) -> list:
        answer = tmp_path / "answer"
        answer.write_text("")
        asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line, "COMP_POINT": str(len(line))}
        environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
        subprocess.run([sys.executable, "-m", "porting"], env=environment, cwd=tmp_path, check=True)
        return [word.strip() for word in answer.read_text().split("\n")]

    return give


@needs_argcomplete
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("porting expl", ["explain"]),
        ("porting rec", ["recipe"]),
        ("porting recipe sh", ["show"]),
        ("porting recipe run first", ["first_port"]),
        ("porting recipe run first_port --che", ["--check"]),
        ("porting explain host-r", ["host-read"]),
        ("porting plan train.py:make --mach", ["--machine"]),
        ("porting plan train.py:make --machine bow-pod1", ["bow-pod128", "bow-pod16"]),
        ("porting compile x --engine re", [name for name in list_choices() if name.startswith("re")]),
        ("porting bench x --eager-optimizer f", ["fused"]),
        ("porting --format j", ["json"]),
    ],
)
def test_what_may_come_next_is_told(ask, line, expected):
    assert sorted(ask(line)) == sorted(expected)


@needs_argcomplete
def test_files_are_offered_for_programs(ask, tmp_path):
    (tmp_path / "train_of_test.py").write_text("")

    assert "train_of_test.py" in ask("porting check train_")


def test_without_argcomplete_nothing_is_told(monkeypatch, capsys):
    def leave(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setenv("_ARGCOMPLETE", "1")
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setattr(os, "_exit", leave)

    with pytest.raises(SystemExit, match="1"):
        main([])

    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("line", "words"),
    [("porting recipe run ", ["recipe", "run"]), ("porting check 'my tr", ["check", "'my", "tr"]), ("porting", [])],
)
def test_the_words_before_the_cursor_are_read(monkeypatch, line, words):
    monkeypatch.setenv("COMP_LINE", f"{line} and more")
    monkeypatch.setenv("COMP_POINT", str(len(line)))

    assert read_typed_words() == words
