"""The table has a column for each way, and what it comes to is the mean and the smallest of the best ratios."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.against import Against, sum_up_ways
from porting.bench.against_pages import lay_out_ways, list_way_rows, summarize_cases
from porting.bench.html_page import write_html
from porting.bench.pages import lay_out_table
from porting.bench.turns import Turns

from .conftest import make_record, results_of


def turns_of(wall: float, cpu: float) -> Turns:
    return Turns(call_seconds=((wall,),), cpu_seconds=(cpu,))


@pytest.fixture
def cases(report):
    """Make two cases: one whose best way is four times as slow as the port, and one that is behind it."""

    def case_of(name: str, plain: Turns, fused: Turns, **changes):
        turns = {"plain": plain, "fused": fused, "ported": turns_of(1.0, 1.0)}
        against = sum_up_ways(turns, ["plain", "fused", "compile"], reasons={"compile": "broken"}, steps_per_call=1)
        return make_record(name=name, report=dataclasses.replace(report, against=against), **changes)

    return [
        case_of("ahead", turns_of(5.0, 3.0), turns_of(4.0, 4.0), demanded=1.0),
        case_of("behind", turns_of(0.25, 3.0), turns_of(9.0, 12.0), demanded=1.0),
    ]


def test_the_mean_is_that_of_the_best_ratios_by_each_clock(cases):
    summary = summarize_cases(cases, demanded_mean=1.4)

    assert summary["wall"] == {
        "geometric_mean": pytest.approx(1.0),
        "smallest": pytest.approx(0.25),
        "smallest_of": "behind replay",
    }
    assert summary["cpu"] == {
        "geometric_mean": pytest.approx(3.0),
        "smallest": pytest.approx(3.0),
        "smallest_of": "ahead replay",
    }
    assert (summary["num_cells"], summary["demanded_mean"]) == (2, 1.4)


def test_a_row_has_every_way_and_the_best(cases):
    header, ahead, behind = list_way_rows(cases)

    assert header[2:6] == ("plain", "fused", "compile", "best")
    assert ahead[2:] == ("5.00 (3.00)", "4.00 (4.00)", "-", "fused", "4.00 (4.00-4.00)", "1.00 ok", "pass")
    assert behind[5:8] == ("plain", "0.25 (0.25-0.25)", "1.00 no")


def test_below_the_table_stands_what_it_comes_to(cases):
    lines = list(lay_out_ways(cases, summary=summarize_cases(cases, demanded_mean=1.4)))

    assert "  geometric mean of 2 over the best: 1.00 by the clock, 3.00 in processor time (asked 1.40 no)" in lines
    assert "  below 1 by the clock: behind replay" in lines
    assert "  ahead replay, not timed: compile: broken" in lines


def test_what_is_asked_is_held_against_the_best_way(cases):
    assert [line.split()[-3:-1][0] for line in lay_out_table(cases) if "1.00 no" in line] != []
    assert "1.00 ok" in next(line for line in lay_out_table(cases) if line.startswith("ahead"))


def test_cases_without_ways_have_no_table(report):
    cases = [make_record(report=report), make_record()]

    assert summarize_cases(cases) is None
    assert list(lay_out_ways(cases, summary=None)) == []


def test_a_result_file_may_have_them(cases, problem_of):
    content = {**results_of(*cases), "summary": summarize_cases(cases)}

    assert problem_of(content) == ""


def test_the_page_has_the_table(cases):
    page = write_html({**results_of(*cases), "summary": summarize_cases(cases)})

    assert "<h2>Over the best way without the port</h2>" in page
    assert "geometric mean of 2 over the best" in page


def test_a_report_of_none_is_no_best():
    assert Against().best is None
