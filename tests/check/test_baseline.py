"""A baseline knows findings again by file and text, wherever their lines are, and as many as there were."""

from __future__ import annotations

import json
import linecache
from pathlib import Path

import pytest

from porting.check.baseline import divide_known, write_baseline
from porting.diagnostics import Finding, Place, PortingError

from .conftest import PROGRAM

BASELINE = Path("known.json")


@pytest.fixture
def known(findings):
    write_baseline(BASELINE, findings)
    return findings


def test_what_was_written_is_known(known):
    new, found, num_obsolete = divide_known(BASELINE, known)

    assert (new, found, num_obsolete) == ([], known, 0)


def test_lines_may_move(known, program):
    Path(program).write_text("# a new line\n\n" + PROGRAM)
    linecache.checkcache(program)
    moved = [Finding("C001", place=Place(program, 10, 11)), Finding("L002", place=Place(program, 8, 12))]

    new, _found, num_obsolete = divide_known(BASELINE, moved)

    assert (new, num_obsolete) == ([], 1)


def test_the_same_line_once_more_is_new(known, program):
    Path(program).write_text(PROGRAM + "    print(loss.item())\n")
    linecache.checkcache(program)
    twice = [Finding("C001", place=Place(program, line, 11)) for line in (8, 9)]

    new, found, _num_obsolete = divide_known(BASELINE, twice)

    assert [finding.place.line for finding in new] == [9]
    assert len(found) == 1


def test_another_code_or_file_is_new(known, program):
    Path("b.py").write_text(PROGRAM)
    others = [Finding("C002", place=Place(program, 8)), Finding("C001", place=Place("b.py", 8))]

    assert divide_known(BASELINE, others)[0] == others


def test_a_baseline_is_known_from_another_folder(known, program, monkeypatch, tmp_path):
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")

    new, _found, _num_obsolete = divide_known(
        Path("..") / BASELINE, [Finding("C001", place=Place(f"../{program}", 8, 11))]
    )

    assert new == []


def test_a_baseline_has_a_line_for_each_fact_and_is_sorted(known):
    document = json.loads(BASELINE.read_text())

    assert document["porting_baseline"] == 1
    assert [entry["code"] for entry in document["findings"]] == ["B006", "C001", "L002"]
    assert document["findings"][1] == {"code": "C001", "file": "train.py", "text": "print(loss.item())", "count": 1}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "it is no baseline"),
        ('{"findings": []}', "it is no baseline"),
        ('{"porting_baseline": 9, "findings": []}', "of version 9"),
        ('{"porting_baseline": 1, "findings": [{"code": "C001"}]}', "it is no baseline"),
    ],
)
def test_what_is_no_baseline_is_refused(text, fault, program):
    if text is not None:
        BASELINE.write_text(text)

    with pytest.raises(PortingError, match=fault) as refused:
        divide_known(BASELINE, [])

    assert refused.value.code == "X007"


def test_a_baseline_that_cannot_be_written_is_told(program):
    with pytest.raises(PortingError, match="cannot be written") as refused:
        write_baseline(Path("no/such/folder/known.json"), [])

    assert refused.value.code == "X007"
