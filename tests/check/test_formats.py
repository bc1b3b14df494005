"""A report is written as text, JSON, SARIF and annotations of a workflow."""

from __future__ import annotations

import json

import pytest

from porting.check.formats import REPORT_FORMATS, write_report
from porting.check.report import Report
from porting.diagnostics import Finding, Place


@pytest.fixture
def report(findings):
    return Report(findings, program="train.py")


def test_text_is_the_report_as_a_string(report):
    assert write_report(report) == str(report)


def test_json_is_the_reports_data(report):
    assert json.loads(write_report(report, "json")) == report.to_dict()


def test_sarif_is_json(report):
    assert json.loads(write_report(report, "sarif"))["version"] == "2.1.0"


def test_annotations_are_one_a_line_and_the_summary_follows(report):
    *annotations, summary = write_report(report, "github").splitlines()

    assert [line.partition(" ")[0] for line in annotations] == ["::error", "::notice", "::warning"]
    assert "file=train.py,line=6,col=12" in annotations[0]
    assert summary == report.summary


def test_an_annotation_of_a_cell_is_at_its_file():
    annotation = write_report(Report([Finding("C001", place=Place("a.ipynb:cell 2", 4, 1))]), "github").splitlines()[0]

    assert "file=a.ipynb,line=1," in annotation
    assert "in cell 2, line 4" in annotation


@pytest.mark.parametrize("format", REPORT_FORMATS)
def test_a_report_without_findings_can_be_written(format):
    assert write_report(Report(), format)
