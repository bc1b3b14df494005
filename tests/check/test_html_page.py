"""The page shows findings with their source, needs nothing but itself, and nothing of a user's text acts on it."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from porting.check.html_page import write_report_page
from porting.check.report import Report
from porting.diagnostics import Finding, Place, Severity

HOSTILE = "<script>alert('x')</script>&\"'"
ALONE = {"meta", "br"}


class Balance(HTMLParser):
    """Notes whether every element that is opened is closed in its turn, and what the text says."""

    def __init__(self):
        super().__init__()
        self.open, self.text = [], ""

    def handle_starttag(self, tag, attrs):
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def text_of(page: str) -> str:
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    return balance.text


def test_a_page_shows_each_finding_with_its_lines(findings):
    text = text_of(write_report_page(Report(findings, program="train.py")))

    assert "loss = criterion(model(x), y)" in text
    assert "help: reduce it: loss.mean()" in text
    assert "4 samples are dropped" in text


def test_the_span_of_a_finding_is_marked(findings):
    assert "<mark>criterion(model(x), y)</mark>" in write_report_page(Report(findings))


def test_a_page_needs_nothing_else(findings):
    page = write_report_page(Report(findings, is_ported=False))

    assert set(re.findall(r"(?:src|href)=\"(.)", page)) == {"#"}
    assert "http" not in re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)


def test_links_lead_to_the_pages_of_codes(findings):
    page = write_report_page(Report(findings, is_ported=False))

    assert set(re.findall(r'href="#(\w+)"', page)) == set(re.findall(r'id="(\w+)"', page)) == {"L002", "C001", "B006"}


def test_a_page_shows_users_text_and_does_not_run_it(program, tmp_path):
    (tmp_path / program).write_text(f"x = 1  # {HOSTILE}\n")
    hostile = Finding("L002", HOSTILE, place=Place(program, 1, 1, 1, 20), label=HOSTILE, notes=HOSTILE, help=HOSTILE)

    page = write_report_page(Report([hostile], program=HOSTILE, facts=[HOSTILE], is_ported=False))

    assert "<script>" not in page
    assert text_of(page).count(HOSTILE) >= 5


def test_a_place_that_cannot_be_read_is_named_alone():
    page = write_report_page(Report([Finding("L002", place=Place("/no/such.py", 3))]))

    assert "/no/such.py:3" in text_of(page)
    assert '<span class="here">' not in page


def test_the_end_of_a_file_is_no_row_of_empty_lines(program):
    page = write_report_page(Report([Finding("C001", place=Place(program, 8, 1))]))

    assert '<span class="number">10' not in page


def test_a_clean_page_says_so():
    assert "nothing was found" in text_of(write_report_page(Report(program="train.py")))


def test_a_table_that_was_measured_keeps_its_lines():
    page = write_report_page(Report(facts=["the loader's data:\nbatches  34\nrows    100"]))

    assert "<pre>batches  34\nrows    100</pre>" in page


@pytest.mark.parametrize(
    ("severities", "colour"),
    [(["note", "warning", "error"], "error"), (["note", "warning"], "warning"), (["note"], "note"), ([], "ok")],
)
def test_the_summary_has_the_colour_of_the_worst_finding(severities, colour):
    findings = [
        Finding("C001", severity=Severity(severity), place=Place("train.py", line, 1))
        for line, severity in enumerate(severities, 1)
    ]

    page = write_report_page(Report(findings, program="train.py"))

    assert f'<p class="verdict {colour}">' in page
