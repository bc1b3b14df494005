"""A report tells all findings, by file and line, and ends with one line that sums them up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from porting.check.report import Report, count_severities, sort_findings
from porting.diagnostics import Finding, Place


def test_a_report_without_findings_is_clean():
    report = Report(program="train.py", looked_at=["3 files"])

    assert report.is_clean
    assert str(report) == "nothing was found that stands between train.py and an IPU (3 files)"


def test_findings_stand_by_file_and_line_with_their_source(findings):
    text = str(Report(findings, program="train.py"))

    assert text.index("train.py: 1 error and 1 note") < text.index("error[L002]") < text.index("note[C001]")
    assert text.index("note[C001]") < text.index("without a place: 1 warning") < text.index("warning[B006]")
    assert " 6 |     loss = criterion(model(x), y)\n   |            ^^^^^^^^^^^^^^^^^^^^^^ a tensor of 8\n" in text


def test_the_summary_is_the_last_line_and_says_how_many_of_what(findings):
    report = Report([*findings, replace(findings[1], place=Place("train.py", 7))], program="train.py")

    assert str(report).splitlines()[-1] == report.summary
    assert report.summary == (
        "2 errors, 1 warning and 1 note stand between train.py and an IPU: "
        "2 loss-not-scalar, 1 host-read, 1 samples-dropped"
    )


def test_one_finding_stands_alone():
    assert "1 error stands between" in Report([Finding("D001")]).summary


def test_what_was_left_out_is_said(findings):
    report = Report([], program="train.py", num_allowed=2, num_known=5, num_obsolete=1)

    assert report.summary.endswith(
        "; 2 allowed in the source, 5 in the baseline, 1 of the baseline are gone: write it again"
    )


def test_a_plain_program_is_told_what_its_port_needs_in_order(findings):
    lines = str(Report(findings, program="train.py", is_ported=False)).splitlines()
    first = lines.index("what a port of train.py needs, in this order:")

    numbered = [line.split()[0] for line in lines[first + 1 :] if line[:4].strip()]
    assert numbered[:3] == ["1.", "2.", "3."]
    second = next(number for number, line in enumerate(lines) if line.startswith(" 2. "))
    assert "reduce it: `loss.mean()`" in lines[second]
    assert "train.py:6:12" in lines[second + 1]


def test_a_need_names_the_step_of_a_recipe_that_shows_it(program):
    outside = Finding("L001", "a port needs its loss inside `forward`", place=Place(program, 6, 12))

    lines = str(Report([outside], program="train.py", is_ported=False)).splitlines()

    first = lines.index(" 1.  its loss inside `forward`")
    assert lines[first + 1 : first + 3] == [
        "     L001 at train.py:6:12",
        "     porting recipe show first_port --step 2 --diff",
    ]


@pytest.mark.parametrize(("columns", "widest"), [("40", 80), ("96", 96), ("400", 120)])
def test_the_list_of_needs_fits_the_terminal(program, monkeypatch, columns, widest):
    monkeypatch.setenv("COLUMNS", columns)
    needed = "a port needs " + "to be told of it " * 20
    places = [Place(program, line, 5) for line in range(1, 30)]

    lines = str(Report([Finding("L001", needed, place=place) for place in places], is_ported=False)).splitlines()
    first = lines.index("what a port of the model needs, in this order:")
    listed = lines[first:-2]

    assert widest - 20 <= max(map(len, listed)) <= widest
    assert any(line.endswith("train.py:1:5, 2:5, 3:5, 4:5 and 25 more") for line in listed)


def test_a_ported_program_has_no_list_of_needs(findings):
    assert Report(findings).needs == ()


def test_what_was_measured_is_told_before_the_summary():
    report = Report(facts=["the largest activation is 12.5"])

    assert str(report).splitlines()[0] == "the largest activation is 12.5"


def test_the_same_finding_of_two_rules_is_told_once(findings):
    assert len(Report([*findings, findings[0]]).findings) == 3


def test_files_stay_in_the_order_of_their_first_findings():
    places = [Place("b.py", 9), Place("a.py", 5), Place("b.py", 2), Place("a.py", 1, 7), Place("a.py", 1, 2)]

    ordered = sort_findings(Finding("C001", place=place) for place in places)

    assert [str(finding.place) for finding in ordered] == ["b.py:2", "b.py:9", "a.py:1:2", "a.py:1:7", "a.py:5"]


def test_a_report_is_plain_data(findings):
    document = json.loads(json.dumps(Report(findings, program="train.py", is_ported=False).to_dict()))

    assert document["counts"]["by_severity"] == {"error": 1, "note": 1, "warning": 1}
    assert document["counts"]["by_code"] == {"L002": 1, "C001": 1, "B006": 1}
    assert [finding["code"] for finding in document["findings"]] == ["L002", "C001", "B006"]
    assert [need["code"] for need in document["needs"]] == ["C001", "L002", "B006"]
    assert document["is_clean"] is False


def test_severities_are_counted_from_the_worst_on():
    assert count_severities([Finding("C011"), Finding("B006"), Finding("L002")]) == "1 error, 1 warning and 1 note"


@pytest.mark.parametrize("number", [0, 1])
def test_codes_are_each_told_once(number):
    assert Report([Finding("L002")] * (number + 1)).codes == ("L002",)


def test_guesses_are_told_and_change_nothing():
    report = Report([Finding("B014", is_guess=True)], program="train.py")

    assert report.is_clean
    assert report.summary.endswith("; 1 by guess alone")
    assert report.to_dict()["findings"][0]["is_guess"]
    assert not Report([Finding("B014")], program="train.py").is_clean


def test_programs_that_could_not_be_looked_at_are_told_and_never_clean(program):
    failure = Finding("E021", "loading `train.py:make` failed", place=Place(program, 3))

    report = Report(program="train.py:make", failures=[failure])

    assert not report.is_clean
    assert report.summary.startswith("nothing was found in what could be read")
    assert report.summary.endswith("; 1 could not be looked at")
    assert report.to_dict()["failures"] == [failure.to_dict()]


# -- the short list ----------------------------------------------------------------------------------------------------


def find_many(number: int) -> list:
    """Make findings of two codes, the milder one first."""
    return [Finding("B006" if line % 2 else "L002", place=Place("train.py", line)) for line in range(1, number + 1)]


def test_a_long_report_of_a_port_ends_with_the_short_list():
    lines = str(Report(find_many(6), program="train.py")).splitlines()

    assert lines[-5:-1] == [
        "3 errors and 3 warnings, in short:",
        "    3 L002 loss-not-scalar at train.py:2, 4, 6",
        "    3 B006 samples-dropped at train.py:1, 3, 5",
        "",
    ]


def test_a_report_of_few_findings_has_no_short_list():
    assert "in short" not in str(Report(find_many(5), program="train.py"))


@pytest.mark.parametrize(("number", "is_first"), [(20, False), (21, True)])
def test_of_many_findings_the_short_list_is_told_first_as_well(number, is_first):
    text = str(Report(find_many(number), program="train.py"))

    assert text.splitlines()[0].endswith("in short:") is is_first
    assert text.count("in short:") == 1 + is_first


def test_the_needs_of_a_plain_program_are_its_short_list_at_the_end():
    text = str(Report(find_many(21), program="train.py", is_ported=False))

    assert text.index("in short:") < text.index("error[L002]") < text.index("what a port of train.py needs")
    assert text.count("in short:") == 1
