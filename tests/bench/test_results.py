"""A result file follows its schema at every moment, and one that does not is refused with reasons."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import torch

from porting.bench.choices import Choices
from porting.bench.processes import Cell
from porting.bench.results import (
    ResultFile,
    check,
    describe_machine,
    list_machine_differences,
    load_schema,
    read_results,
)
from porting.diagnostics import PortingError

from .conftest import QUICK, make_record, results_of
from .test_curve_pages import make_curve

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


def test_a_curve_follows_the_schema(report):
    record = make_record(report=report)
    record["result"]["curve"] = make_curve(cold=(4.0, 4.5), engines=("replay", "aot"))

    assert check(results_of(record), load_schema()) == []


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


# -- the machine -------------------------------------------------------------------------------------------------------


def test_a_machine_is_told_with_its_cores_and_its_torch():
    machine = describe_machine()

    assert machine["num_cores"] >= 1
    assert machine["torch"] == torch.__version__


def test_how_busy_a_machine_was_makes_it_no_other():
    machine = describe_machine()

    assert list_machine_differences(machine, {**machine, "load_average": 99.0}) == []


# -- the schema --------------------------------------------------------------------------------------------------------


def test_every_definition_of_the_schema_is_closed():
    schema = load_schema()

    assert [name for name, kind in schema["definitions"].items() if kind["additionalProperties"] is not False] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"status": "great"}, "$.cells[0].status: 'great' is none of"),
        ({"repeat": "1"}, "$.cells[0].repeat: '1' is not of type integer"),
        ({"more": 1}, "$.cells[0]: unknown key `more`"),
        ({"demanded": True}, "$.cells[0].demanded: True is not of type number or null"),
    ],
)
def test_the_check_names_the_place_of_a_problem(change, problem):
    content = results_of(make_record(**change))

    (found,) = check(content, load_schema())

    assert found.startswith(problem)


def test_the_schema_is_json_schema_for_other_tools():
    assert json.loads(json.dumps(load_schema()))["$schema"] == "http://json-schema.org/draft-07/schema#"


# -- going on with a file ----------------------------------------------------------------------------------------------


def make_cells(*names: str, **changes) -> list:
    """Make the cells of which `make_record` makes the records."""
    return [
        Cell(
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


def test_done_cells_stay_and_all_others_are_to_be_run(report):
    done, failed = make_record(name="a", report=report), make_record(name="b", status="failed", reason="killed")

    results = ResultFile(make_cells("a", "b", "c"), earlier=results_of(done, failed))

    assert [(cell["name"], cell["status"]) for cell in results.cells] == [
        ("a", "done"),
        ("b", "not_run"),
        ("c", "not_run"),
    ]
    assert results.cells[0] == done


def test_a_cell_that_was_measured_otherwise_is_measured_again(report):
    settings = dataclasses.replace(QUICK, rounds=9)

    results = ResultFile(make_cells("a", settings=settings), earlier=results_of(make_record(name="a", report=report)))

    assert [cell["status"] for cell in results.cells] == ["not_run"]


def test_settings_that_an_earlier_version_lacked_are_their_defaults(report):
    record = make_record(name="a", report=report)
    del record["result"]["settings"]["against"]

    results = ResultFile(make_cells("a"), earlier=results_of(record))

    assert results.cells == [record]


def test_cells_of_another_part_stay_in_their_places(report):
    earlier = results_of(make_record(name="a", report=report), make_record(name="b"), make_record(name="c"))

    results = ResultFile(make_cells("c", "d"), earlier=earlier)
    results.put(0, make_record(name="c", report=report))
    results.put(1, make_record(name="d", report=report))
    results.finish()

    assert [(cell["name"], cell["status"]) for cell in results.cells] == [
        ("a", "done"),
        ("b", "not_run"),
        ("c", "done"),
        ("d", "done"),
    ]
    assert [cell["name"] for cell in results.own_cells] == ["c", "d"]
    assert results.content["complete"] is False


def test_the_last_part_completes_the_file(report):
    results = ResultFile(make_cells("b"), earlier=results_of(make_record(name="a", report=report)))
    results.put(0, make_record(name="b", report=report))
    results.finish()

    assert results.content["complete"] is True


def test_cells_that_are_alike_have_a_place_each(report):
    results = ResultFile(make_cells("a", "a", "a"), earlier=results_of(*[make_record(name="a", report=report)] * 2))

    assert [cell["status"] for cell in results.own_cells] == ["done", "done", "not_run"]


def test_results_of_another_machine_are_not_gone_on_with(report):
    earlier = results_of(make_record(name="a", report=report))
    earlier["machine"] = {**earlier["machine"], "torch": "2.0.1"}

    with pytest.raises(PortingError, match="those of another machine") as caught:
        ResultFile(make_cells("a"), earlier=earlier)

    assert caught.value.code == "T006"
    assert any("torch: 2.0.1 then" in note for note in caught.value.finding.notes)
