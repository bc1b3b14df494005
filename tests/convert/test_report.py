"""A conversion's report begins with its columns, and stays short however many edits and places there are."""

from __future__ import annotations

import io
import re

import pytest

from porting.convert.bindings import Undecided
from porting.convert.columns import Column, Outcome, Proof
from porting.convert.conversion import PLAIN, Conversion
from porting.convert.device_option import DeviceOption
from porting.convert.editing import Edit
from porting.convert.report import describe_conversion, write_report

REASON = "the port trains as the original, and without a device every bit is the same, of losses and of weights"
PROOF = Proof((Column("numeric", Outcome.PASSED, "equal", command="one"), Column("behavioral", Outcome.FAILED, REASON)))


class Terminal(io.StringIO):
    """A stream that is read by a person."""

    def isatty(self):
        return True


@pytest.fixture
def make(tmp_path):
    """Make a conversion of some files with three edits each, and with some places that are left."""

    def make_conversion(num_files=1, left=(), style="minimal"):
        made = Conversion(str(tmp_path), "train.py", (), style, DeviceOption())
        for number in range(num_files):
            name = f"file_{number}.py"
            made.edits += [Edit(str(tmp_path / name), line, kind, "why") for line, kind in ((1, "port"), (2, "import"))]
            made.edits.append(Edit(str(tmp_path / name), 3, "import", "why"))
            made.changed[name] = made.before[name] = b""
            made.diffs.append(f"--- {name}\n")
        made.left += [Undecided(str(tmp_path / f"{name}.py"), 7, reason, "mend it") for name, reason in left]
        return made

    return make_conversion


def test_the_columns_come_first_with_what_they_say(make):
    lines = write_report(make(), PROOF, io.StringIO()).split("\n")

    assert lines[:4] == [
        "train.py, style minimal: 3 edits in 1 file",
        "",
        "passed   numeric        equal",
        f"failed   behavioral     {REASON}",
    ]


def test_a_file_has_one_line_and_a_long_list_ends(make):
    text = write_report(make(num_files=25), None, io.StringIO())

    assert "  file_0.py   port, import x2\n" in text
    assert "file_20.py" not in text
    assert "  and 5 more files\n" in text


def test_places_that_are_left_for_one_reason_share_it(make):
    left = [(name, "why not") for name in "abcde"] + [("f", "other")]

    lines = write_report(make(left=left), None, io.StringIO()).split("\n")

    start = lines.index("left to you: 6 places")
    assert lines[start + 1 : start + 5] == [
        "  a.py:7, b.py:7, c.py:7 and 2 more: why not",
        "      mend it",
        "  f.py:7: other",
        "      mend it",
    ]


def test_the_diff_takes_the_place_of_the_hint_at_it(make):
    assert "--diff shows" in write_report(make(), None, io.StringIO())
    assert "--diff shows" not in write_report(make(), None, io.StringIO(), shows_diff=True)


@pytest.mark.parametrize("columns", [80, 120])
def test_sentences_have_the_width_of_the_terminal(make, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    made = make(left=[("a", "a reason of many words " * 8)])
    made.notes.append("a note of many words " * 9)

    text = write_report(made, PROOF, Terminal())

    # commands stay whole
    assert max(map(len, text.split("to train:")[0].split("\n"))) <= columns
    assert re.sub(r"\s+", " ", text).count(REASON) == 1


def test_a_terminal_has_the_outcomes_in_colours(make, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    text = write_report(make(), PROOF, Terminal())

    assert "\033[32mpassed \033[0m  numeric" in text
    assert "\033[31mfailed \033[0m  behavioral" in text


def test_the_commands_of_the_columns_are_shown_where_they_work(make):
    assert "one" not in write_report(make(), PROOF, io.StringIO()).split()
    assert "  numeric: one" in write_report(make(), PROOF, io.StringIO(), shows_commands=True)


def test_what_was_not_run_is_not_claimed(make):
    plan = describe_conversion(make(), None)

    assert not plan["proof"]["is_proven"]
    assert {one["outcome"] for one in plan["proof"]["columns"]} == {"not run"}


@pytest.mark.parametrize(("style", "verb"), [("minimal", "convert"), (PLAIN, "eject")])
def test_the_next_commands_have_the_options_of_this_one(make, monkeypatch, tmp_path, style, verb):
    monkeypatch.chdir(tmp_path)

    plan = describe_conversion(make(style=style), None, options=["--style=minimal"])

    assert plan["commands"]["write"] == f"porting {verb} . --run train.py --style=minimal --write"


def test_only_what_was_started_by_torchrun_is_said_to_be(make):
    made = make()
    assert "torchrun" not in write_report(made, None, io.StringIO())

    made.before["file_0.py"] = b"import torch.distributed as dist\n"
    assert "torchrun" in write_report(made, None, io.StringIO())
