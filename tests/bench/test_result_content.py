"""The classes of a result file read what was written, and say which statuses and schemas there are."""

from __future__ import annotations

import json

import pytest

from porting.bench.result_content import ResultContent, Status
from porting.support.plain_data import WrongDataError, read_plain

from .conftest import make_record, results_of


def test_a_measured_case_is_read_as_the_report_that_it_was(report):
    content = json.loads(json.dumps(results_of(make_record(report=report, status="done"))))

    (case,) = read_plain(ResultContent, content, of_any_version=True).cells

    assert case.status is Status.DONE
    assert case.result.speed_up == report.speed_up
    assert case.result.settings == report.settings


def test_a_file_of_another_schema_is_none():
    with pytest.raises(WrongDataError, match="`schema` must be one of porting-bench"):
        read_plain(ResultContent, {**results_of(), "schema": "other"}, of_any_version=True)
