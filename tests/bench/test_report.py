"""A report is a page and plain values, and says after how many steps compiling has paid."""

from __future__ import annotations

import json

import pytest

from porting.bench.report import ResultContent, Status, find_break_even_steps
from porting.support.plain_data import WrongDataError, read_plain

from .conftest import make_record, results_of


def test_the_plain_form_is_json(report):
    assert json.loads(json.dumps(report.to_dict()))["device"]["is_proven"] is True


def test_the_page_has_the_figures_that_decide(report):
    page = str(report)

    assert [word for word in ("speed-up", "break-even", "same losses", "ran on", "compiling") if word not in page] == []
    assert max(map(len, page.splitlines())) <= 130


@pytest.mark.parametrize(("ported", "expected"), [(0.5, 20), (1.0, None), (2.0, None)])
def test_compiling_pays_after_what_it_took_over_what_a_step_saves(ported, expected):
    assert find_break_even_steps(10.0, eager_seconds=1.0, ported_seconds=ported) == expected


def test_a_measured_case_is_read_as_the_report_that_it_was(report):
    content = json.loads(json.dumps(results_of(make_record(report=report, status="done"))))

    (case,) = read_plain(ResultContent, content, of_any_version=True).cells

    assert case.status is Status.DONE
    assert case.result.speed_up == report.speed_up
    assert case.result.settings == report.settings


def test_a_file_of_another_schema_is_none():
    with pytest.raises(WrongDataError, match="`schema` must be one of porting-bench"):
        read_plain(ResultContent, {**results_of(), "schema": "other"}, of_any_version=True)
