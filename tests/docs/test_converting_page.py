"""The page on converting shows what the commands print, and its table has the fields of their data."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from porting.cli.main import main
from tests.docs.page_blocks import blocks_of

pytest.importorskip("libcst")

PAGE = Path(__file__).parents[2] / "docs" / "converting.md"
ASSISTANT = PAGE.with_name("porting-with-an-assistant.md")
SESSIONS = [
    [step.split("\n") for step in re.split(r"^\$ porting ", block.source, flags=re.MULTILINE)[1:]]
    for block in blocks_of(PAGE)
    if block.language == "console"
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Work in a folder with the programs of the page."""
    folder = tmp_path / "project"
    folder.mkdir()
    for block in blocks_of(PAGE):
        if block.language == "py":
            (folder / block.file_name).write_text(block.source)
    monkeypatch.chdir(folder)
    return folder


def list_lacking(command, shown, capsys):
    """Run a command; list the lines of the page that it did not print in this order, and then all that it printed."""
    main(shlex.split(command))
    printed = capsys.readouterr()
    lines = iter(printed.out.split("\n"))
    wanted = [line for line in shown if line.strip() not in ("", "...")]
    lacking = [line for line in wanted if not any(line == there for there in lines)]
    # what was printed says why, where the test fails on a machine that nobody can look at
    return [*lacking, printed.out, printed.err] if lacking else []


def test_what_is_left_is_told_as_the_page_shows(project, capsys):
    ((command, *shown),) = next(steps for steps in SESSIONS if "--plan" in steps[0][0])

    assert list_lacking(command, shown, capsys) == []


@pytest.mark.slow
@pytest.mark.parametrize("steps", [steps for steps in SESSIONS if "--plan" not in steps[0][0]], ids=len)
def test_conversions_and_ejections_are_told_as_the_page_shows(project, capsys, steps):
    (project / "guarded.py").unlink()
    before = (project / "train.py").read_text()

    assert [list_lacking(command, shown, capsys) for command, *shown in steps] == [[]] * len(steps)
    assert ((project / "train.py").read_text() != before) is any("--write" in command for command, *_shown in steps)


def test_the_table_has_the_fields_of_the_data(project, capsys):
    assert main(["convert", "train.py", "--plan", "--format", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)

    rows = re.findall(r"^\| (`.+?) \| (.+) \|$", PAGE.read_text("utf-8").split("## As data")[1], re.MULTILINE)
    named = [name for fields, _meaning in rows for name in re.findall(r"`(\w+)", fields)]
    assert list(dict.fromkeys(named)) == list(plan)
    for field, kind in (("edits", dict), ("proof", list)):
        described = next(meaning for fields, meaning in reversed(rows) if field in fields)
        one = plan["edits"][0] if kind is dict else plan["proof"]["columns"][0]
        assert [name for name in one if f"`{name}`" not in described] == []


@pytest.mark.slow
def test_the_steps_for_an_assistant_end_as_their_page_says(project, capsys):
    (project / "guarded.py").unlink()
    shutil.copytree(project, project.parent / "old")
    rows = re.findall(r"^\| \d\. .+? \| `porting (.+?)` \|", ASSISTANT.read_text("utf-8"), re.MULTILINE)

    statuses = [main(shlex.split(words)) for words in rows]

    # a plain program has findings
    assert statuses == [1, 0, 0, 0, 0], capsys.readouterr().err
