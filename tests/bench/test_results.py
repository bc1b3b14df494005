"""A result file follows its schema at every moment, and one that does not is refused with reasons."""

from __future__ import annotations

import math

import pytest

from porting.bench.cells import Cell
from porting.bench.results import ResultFile, read_results
from porting.diagnostics import PortingError

from .conftest import make_record

CELL = Cell(name="tiny", target="tiny", loader="a:b", arguments={})


def test_a_file_follows_the_schema_before_anything_ran(tmp_path):
    ResultFile([CELL, CELL], tmp_path / "results.json")

    content = read_results(tmp_path / "results.json")

    assert [cell["status"] for cell in content["cells"]] == ["not_run", "not_run"]
    assert content["complete"] is False


def test_a_measured_report_follows_the_schema(tmp_path, report):
    results = ResultFile([CELL], tmp_path / "results.json")

    results.put(0, make_record(report=report))
    results.finish()

    content = read_results(tmp_path / "results.json")
    assert content["complete"] is True
    assert content["cells"][0]["result"]["parity"]["verdict"] == "pass"


def test_a_loss_that_is_not_a_number_is_null(tmp_path, report):
    record = make_record(report=report)
    record["result"]["parity"]["ported_losses"] = (math.nan, 1.0)

    results = ResultFile([CELL], tmp_path / "results.json")
    results.put(0, record)

    assert read_results(tmp_path / "results.json")["cells"][0]["result"]["parity"]["ported_losses"] == [None, 1.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "not of type object"),
        ('{"schema": "porting-bench", "version": 7}', "its version is 7, this porting reads 1"),
        ('{"schema": "other"}', "$: `version` is missing"),
    ],
)
def test_what_is_no_result_file_is_refused(tmp_path, content, problem):
    path = tmp_path / "results.json"
    path.write_text(content)

    with pytest.raises(PortingError) as caught:
        read_results(path)

    assert caught.value.code == "T005"
    assert problem in str(caught.value)
