"""A comment allows what it names on its statement or on the next line of code, and nothing else."""

from __future__ import annotations

import pytest

from porting.check.allowances import divide_findings, list_allowances
from porting.diagnostics import Finding, Place


def divide(source, *places, code="C001", is_judged=lambda code: True):
    """Return the findings that stay, as code and line, and how many are allowed."""
    findings = [Finding(code, place=place if isinstance(place, Place) else Place("a.py", place)) for place in places]
    stay, allowed = divide_findings(findings, {"a.py": list_allowances(source, "a.py")}, is_judged=is_judged)
    return [(finding.code, finding.place.line) for finding in stay], len(allowed)


@pytest.mark.parametrize(
    "source",
    [
        "\nloss.item()  # porting: allow host-read",
        "# porting: allow host-read\nloss.item()",
        "# porting: allow C001\nloss.item()",
        "# Porting:allow  Host-Read  because it is read once\nloss.item()",
        "\nloss.item()  # noqa: F841  # porting: allow label-not-found, host-read".replace("label-not-found, ", ""),
    ],
)
def test_a_comment_allows_a_finding_of_its_line_or_the_line_below(source):
    assert divide(source, 2) == ([], 1)


def test_a_comment_names_several():
    source = "f(x)  # porting: allow host-read, loss-detached"

    assert divide(source, 1) == ([("X006", 1)], 1)
    assert divide(source, 1, is_judged=lambda code: code != "L003") == ([], 1)


def test_a_comment_behind_code_allows_nothing_of_the_next_line():
    assert divide("f(x)  # porting: allow host-read\nloss.item()", 2) == ([("C001", 2), ("X006", 1)], 0)


def test_a_comment_passes_other_comments_and_blank_lines():
    assert divide("# porting: allow host-read\n# as it is needed\n\nloss.item()", 4) == ([], 1)


def test_a_comment_in_a_statement_of_several_lines_allows_what_is_found_there():
    source = "print(\n    loss.item(),  # porting: allow host-read\n)"

    assert divide(source, Place("a.py", 1, 1, 3, 2)) == ([], 1)


def test_another_code_is_not_allowed():
    assert divide("f(x)  # porting: allow host-read", 1, code="L003", is_judged=lambda _code: False) == (
        [("L003", 1)],
        0,
    )


def test_another_file_is_not_allowed():
    stay, allowed = divide_findings(
        [Finding("C001", place=Place("b.py", 1)), Finding("C001")],
        {"a.py": list_allowances("f(x)  # porting: allow host-read", "a.py")},
        is_judged=lambda _code: False,
    )

    assert (len(stay), allowed) == (2, [])


def test_a_comment_that_allows_nothing_is_a_note_at_its_place():
    (finding,), _allowed = divide_findings(
        [], {"a.py": list_allowances("f(x)  # porting: allow host-read", "a.py")}, is_judged=lambda _code: True
    )

    assert finding.message == "a comment allows host-read, which was not found"
    assert finding.place == Place("a.py", 1, 7, 1, 33)


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# porting: allow host-raed", "'host-raed', which is no code or slug"),
        ("# porting: allow", "allows nothing by name"),
    ],
)
def test_a_comment_that_names_nothing_known_is_told_whatever_was_looked_for(comment, message):
    (finding,), _allowed = divide_findings(
        [], {"a.py": list_allowances(comment, "a.py")}, is_judged=lambda _code: False
    )

    assert message in finding.message


def test_a_text_that_looks_like_a_comment_is_none():
    assert list_allowances('text = "# porting: allow host-read"', "a.py") == []


def test_comments_of_what_is_no_python_are_found_all_the_same():
    source = "print 'old'  # porting: allow host-read\n  bad indentation ("

    assert [found.line for found in list_allowances(source, "a.py")] == [1]


@pytest.mark.parametrize("source", ["", "x = 1", "# porting is fun", "# porting: allowed"])
def test_other_comments_allow_nothing(source):
    assert list_allowances(source, "a.py") == []
