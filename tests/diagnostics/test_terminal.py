"""A terminal gets colours and lines of its width; a file or a pipe gets the plain text."""

from __future__ import annotations

import io
import re

import pytest

from porting.diagnostics import Finding, Place, find_width, has_colours, paint, print_finding, render, show
from porting.diagnostics.delivery import warnings_as_findings

CODES = re.compile(r"\033\[[\d;]*m")


class Terminal(io.StringIO):
    """A stream that a user looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    """Take away what this terminal says of itself."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")


@pytest.fixture
def finding(tmp_path):
    """Make a finding with all that one can have, and a long help."""
    program = tmp_path / "train.py"
    program.write_text(f"loss = criterion(model(x), y)  # {'a long line of code ' * 5}\n")
    return Finding("L001", place=Place(str(program), 1, 8, 1, 30), label="here", help="wrap the model " * 10)


def write(text: object, stream: io.StringIO) -> str:
    show(text, stream)
    return stream.getvalue()


def test_a_pipe_gets_the_plain_text(finding):
    assert write(render(finding), io.StringIO()) == render(finding) + "\n"


def test_a_terminal_gets_colours(finding):
    shown = write(render(finding), Terminal())

    assert shown.startswith("\033[31merror[L001]: \033[0m")
    assert "\033[31m^" in shown


@pytest.mark.parametrize(("name", "value", "expected"), [("NO_COLOR", "1", False), ("NO_COLOR", "", True)])
def test_a_terminal_without_colours_is_asked_for(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)

    assert has_colours(Terminal()) is expected


def test_a_terminal_that_has_no_colours_gets_none(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")

    assert not has_colours(Terminal())


def test_colours_can_be_forced_into_a_pipe(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert has_colours(io.StringIO())


def test_no_colours_goes_before_forced_ones(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")

    assert not has_colours(Terminal())


def test_colours_change_no_letter(finding, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert CODES.sub("", write(render(finding), io.StringIO())) == render(finding) + "\n"


def test_sentences_are_wrapped_to_the_terminal_below_their_start(finding):
    lines = CODES.sub("", write(render(finding), Terminal())).splitlines()

    helps = [line for line in lines if "wrap the model" in line]
    assert len(helps) > 2
    assert max(map(len, helps)) <= 60
    assert {line.index("wrap") for line in helps[1:] if line.strip().startswith("wrap")} <= {helps[0].index("wrap")}


def test_code_and_tables_are_not_wrapped(finding):
    table = "name      " + "  ".join(["0.123456"] * 10)

    shown = CODES.sub("", write(f"{render(finding)}\n{table}", Terminal())).splitlines()

    assert table in shown
    assert any(line.startswith(" 1 | loss = ") and len(line) > 100 for line in shown)


def test_the_last_column_of_a_table_is_wrapped_below_itself():
    row = "-   gradient    0    the port keeps them on the device: say so in its options, and they are compared"

    first, *others = CODES.sub("", write(row, Terminal())).splitlines()

    assert first.startswith("-   gradient    0    the port keeps")
    assert others
    assert {len(line) - len(line.lstrip()) for line in others} == {row.index("the port")}
    assert " ".join([first, *others]).split() == row.split()


def test_a_text_that_is_wrapped_loses_no_word(finding):
    assert CODES.sub("", write(render(finding), Terminal())).split() == render(finding).split()


@pytest.mark.parametrize(
    ("line", "colour"),
    [("ok     step 1", "green"), ("FAILED step 1", "red"), ("does not fit: 120%", "red"), ("tight: 95%", "yellow")],
)
def test_a_verdict_has_its_colour(line, colour):
    word = re.match(r"ok|FAILED|does not fit|tight", line)[0]

    assert write(line, Terminal()).startswith(paint(word, colour))


def test_a_pipe_has_no_width():
    assert (find_width(io.StringIO()), find_width(Terminal())) == (None, 60)


def test_a_finding_that_is_printed_is_coloured(finding, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")

    print_finding(finding)

    assert "\033[31m" in capsys.readouterr().err


def test_data_have_no_colours(finding, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")

    with warnings_as_findings("json"):
        print_finding(finding, "json")

    assert capsys.readouterr().err == render(finding, "json") + "\n"
