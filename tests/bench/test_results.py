"""A result file follows its schema at every moment, and one that does not is refused with reasons."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator

import pytest
import torch

from porting.bench import results
from porting.bench.choices import Choices
from porting.bench.pages import lay_out_result
from porting.bench.processes import Case
from porting.bench.report import BenchReport
from porting.bench.results import (
    ResultFile,
    describe_machine,
    list_machine_differences,
    read_results,
)
from porting.diagnostics import PortingError

from .conftest import QUICK, make_record, results_of
from .test_curve import make_curve

CASE = Case(name="tiny", target="tiny", loader="a:b", arguments={})


def test_a_file_follows_the_schema_before_anything_ran(tmp_path):
    ResultFile([CASE, CASE], tmp_path / "results.json")

    content = read_results(tmp_path / "results.json")

    assert [case["status"] for case in content["cells"]] == ["not_run", "not_run"]
    assert content["complete"] is False


def test_a_measured_report_follows_the_schema(tmp_path, report):
    results = ResultFile([CASE], tmp_path / "results.json")

    results.put(0, make_record(report=report))
    results.finish()

    content = read_results(tmp_path / "results.json")
    assert content["complete"] is True
    assert content["cells"][0]["result"]["parity"]["verdict"] == "pass"


def test_a_curve_follows_the_schema(report, problem_of):
    record = make_record(report=report)
    record["result"]["curve"] = make_curve(cold=(4.0, 4.5), engines=("replay", "aot"))

    assert problem_of(results_of(record)) == ""


def test_a_loss_that_is_not_a_number_is_null(tmp_path, report):
    record = make_record(report=report)
    record["result"]["parity"]["ported_losses"] = (math.nan, 1.0)

    results = ResultFile([CASE], tmp_path / "results.json")
    results.put(0, record)

    assert read_results(tmp_path / "results.json")["cells"][0]["result"]["parity"]["ported_losses"] == [None, 1.0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "must be an object"),
        ('{"schema": "porting-bench", "version": 7}', "its version is 7, this porting reads 1"),
        ('{"schema": "other"}', "is missing"),
    ],
)
def test_what_is_no_result_file_is_refused(tmp_path, content, problem):
    path = tmp_path / "results.json"
    path.write_text(content)

    with pytest.raises(PortingError) as caught:
        read_results(path)

    assert caught.value.code == "T005"
    assert problem in str(caught.value)


# -- the machine -------------------------------------------------------------------------------------------------------


def test_a_machine_is_told_with_its_cores_and_its_torch():
    machine = describe_machine()

    assert machine["num_cores"] >= 1
    assert machine["torch"] == torch.__version__


def test_how_busy_a_machine_was_makes_it_no_other():
    machine = describe_machine()

    assert list_machine_differences(machine, {**machine, "load_average": 99.0}) == []


# -- what a file holds -------------------------------------------------------------------------------------------------


def test_unknown_names_are_refused_at_every_depth(report, problem_of):
    def list_places(value, place=()):
        if isinstance(value, dict):
            yield place
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in items:
            yield from list_places(item, (*place, key))

    content = json.loads(json.dumps(results_of(make_record(report=report))))
    read_as_they_are = {"summary", "candidates", "ways", "engines"}
    problems = {}
    for place in list_places(content):
        changed = json.loads(json.dumps(content))
        functools.reduce(operator.getitem, place, changed)["more"] = 1
        problems[place] = problem_of(changed)

    assert len(problems) > 15
    assert [
        p for p, found in problems.items() if not {*p} & read_as_they_are and "more` is not known" not in found
    ] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"status": "great"}, "`cells[0].status` must be one of done, failed"),
        ({"repeat": "1"}, "`cells[0].repeat` must be a whole number from 0 on, not '1'"),
        ({"more": 1}, "`cells[0].more` is not known"),
        ({"demanded": True}, "`cells[0].demanded` must be a number, not True"),
    ],
)
def test_a_problem_is_told_with_its_place(problem_of, change, problem):
    assert problem_of(results_of(make_record(**change))).startswith(problem)


@pytest.mark.parametrize("lacking", ["trains", "curve", "limits", "layout_copies", "machinery", "against"])
def test_what_an_earlier_version_did_not_measure_is_as_if_it_was_left_out(report, read_back, lacking):
    record = make_record(report=report)
    del record["result"][lacking]

    (case,) = read_back(results_of(record))["cells"]

    left_out = {field.name: field.default for field in dataclasses.fields(BenchReport)}[lacking]
    assert case["result"][lacking] == (
        left_out if lacking == "trains" else json.loads(json.dumps(dataclasses.asdict(left_out)))
    )
    assert list(lay_out_result(case["result"])) != []


# -- going on with a file ----------------------------------------------------------------------------------------------


def make_cases(*names: str, **changes) -> list:
    """Make the cases of which `make_record` makes the records."""
    return [
        Case(
            **{
                "name": name,
                "target": name,
                "loader": "a:b",
                "arguments": {},
                "choices": Choices(engine="replay"),
                "settings": QUICK,
                **changes,
            }
        )
        for name in names
    ]


def test_done_cases_stay_and_all_others_are_to_be_run(report):
    done, failed = make_record(name="a", report=report), make_record(name="b", status="failed", reason="killed")

    results = ResultFile(make_cases("a", "b", "c"), earlier=results_of(done, failed))

    assert [(case["name"], case["status"]) for case in results.cases] == [
        ("a", "done"),
        ("b", "not_run"),
        ("c", "not_run"),
    ]
    assert results.cases[0] == done


def test_a_case_that_was_measured_otherwise_is_measured_again(report):
    settings = dataclasses.replace(QUICK, rounds=9)

    results = ResultFile(make_cases("a", settings=settings), earlier=results_of(make_record(name="a", report=report)))

    assert [case["status"] for case in results.cases] == ["not_run"]


def test_settings_that_an_earlier_version_lacked_are_their_defaults(report):
    record = make_record(name="a", report=report)
    del record["result"]["settings"]["against"]

    results = ResultFile(make_cases("a"), earlier=results_of(record))

    assert results.cases == [record]


def test_cases_of_another_part_stay_in_their_places(report):
    earlier = results_of(make_record(name="a", report=report), make_record(name="b"), make_record(name="c"))

    results = ResultFile(make_cases("c", "d"), earlier=earlier)
    results.put(0, make_record(name="c", report=report))
    results.put(1, make_record(name="d", report=report))
    results.finish()

    assert [(case["name"], case["status"]) for case in results.cases] == [
        ("a", "done"),
        ("b", "not_run"),
        ("c", "done"),
        ("d", "done"),
    ]
    assert [case["name"] for case in results.own_cases] == ["c", "d"]
    assert results.content["complete"] is False


def test_the_last_part_completes_the_file(report):
    results = ResultFile(make_cases("b"), earlier=results_of(make_record(name="a", report=report)))
    results.put(0, make_record(name="b", report=report))
    results.finish()

    assert results.content["complete"] is True


def test_cases_that_are_alike_have_a_place_each(report):
    results = ResultFile(make_cases("a", "a", "a"), earlier=results_of(*[make_record(name="a", report=report)] * 2))

    assert [case["status"] for case in results.own_cases] == ["done", "done", "not_run"]


def test_results_of_another_machine_are_not_gone_on_with(report):
    earlier = results_of(make_record(name="a", report=report))
    earlier["machine"] = {**earlier["machine"], "torch": "2.0.1"}

    with pytest.raises(PortingError, match="those of another machine") as caught:
        ResultFile(make_cases("a"), earlier=earlier)

    assert caught.value.code == "T006"
    assert any("torch: 2.0.1 then" in note for note in caught.value.finding.notes)


def test_a_record_of_another_machine_says_which_it_is(monkeypatch):
    monkeypatch.setattr(results, "run_case", lambda case, **_told: case.record("failed"))

    record = results.run_elsewhere(Case(name="tiny", target="tiny", loader="a:b", arguments={}), timeout=1.0)

    assert (record["status"], record["machine"]) == ("failed", describe_machine())
