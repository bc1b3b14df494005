"""Tables fit a terminal, say what cases have in common once, and have a column for each way to train without a port."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.against import Against, sum_up_ways
from porting.bench.case_tables import (
    lay_out_machinery,
    lay_out_orders,
    lay_out_start_up,
    lay_out_table,
    list_way_tables,
    summarize_cases,
)
from porting.bench.children import Memory
from porting.bench.html_page import write_html
from porting.bench.turns import Turns

from .conftest import make_record, results_of
from .test_pages import COLD_AND_WARM


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_table_is_no_wider_than_asked(report, width):
    records = [make_record(name="a_rather_long_name_of_a_model" * 3, report=report, demanded=1.5)]

    assert max(map(len, lay_out_table(records, width=max(width, 112)))) <= max(width, 112)


def test_what_was_asked_stands_beside_what_was_reached(report):
    lines = list(lay_out_table([make_record(report=report, demanded=1e-6), make_record(report=report, demanded=1e6)]))

    assert (" ok" in lines[3], " no" in lines[4]) == (True, True)


def test_a_failed_case_says_why_below(report):
    failed = make_record(name="bad", status="failed", reason="ValueError: no data")

    assert "bad: failed: ValueError: no data" in list(lay_out_table([make_record(report=report), failed]))


def test_what_a_call_costs_by_itself_is_told_of_the_tiny_models(report):
    records = [make_record(name=name, report=report) for name in ("overhead_tiny", "overhead_tiny_inference", "cnn")]
    extra = 1e6 * (report.ported.step_seconds.median - report.eager.step_seconds.median)

    (line,) = lay_out_machinery(records)

    assert f"{extra:.0f} us in training, {extra:.0f} us in inference" in line


def test_the_peak_of_each_order_stands_beside_that_of_none(report):
    def record_of(order: str, peak: int) -> dict:
        record = make_record(report=dataclasses.replace(report, memory=Memory(ported_process_bytes=peak)))
        return {**record, "choices": {**record["choices"], "order": order}}

    lines = list(lay_out_orders([record_of("none", 4 << 20), record_of("chen", 3 << 20)]))

    assert [line.split()[-4:] for line in lines] == [["MiB", "x1.00", "of", "none"], ["MiB", "x0.75", "of", "none"]]


def test_the_start_of_every_case_is_told_by_its_name(report):
    started = dataclasses.replace(report, start_up=COLD_AND_WARM)

    title, *lines = lay_out_start_up([make_record(report=report), make_record(name="other", report=started)])

    assert title == "start-up of other"
    assert any("cold x2.00" in line for line in lines)


# -- ways to train without the port ------------------------------------------------------------------------------------


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
    (table,) = list_way_tables(cases, summary=None)
    header, ahead, behind = table.rows

    assert header[2:6] == ("plain", "fused", "compile", "best")
    assert ahead[2:] == ("5.00 (3.00)", "4.00 (4.00)", "-", "fused", "4.00 (4.00-4.00)", "1.00 ok", "pass")
    assert behind[5:8] == ("plain", "0.25 (0.25-0.25)", "1.00 no")


def test_below_the_table_stands_what_it_comes_to(cases):
    (table,) = list_way_tables(cases, summary=summarize_cases(cases, demanded_mean=1.4))

    assert "geometric mean of 2 over the best: 1.00 by the clock, 3.00 in processor time (asked 1.40 no)" in table.notes
    assert "below 1 by the clock: behind replay" in table.notes
    assert "ahead replay, not timed: compile: broken" in table.notes


def test_what_is_asked_is_held_against_the_best_way(cases):
    assert [line.split()[-3:-1][0] for line in lay_out_table(cases) if "1.00 no" in line] != []
    assert "1.00 ok" in next(line for line in lay_out_table(cases) if line.startswith("ahead"))


def test_cases_without_ways_have_no_table(report):
    cases = [make_record(report=report), make_record()]

    assert summarize_cases(cases) is None
    assert list_way_tables(cases, summary=None) == []


def test_a_result_file_may_have_them(cases, problem_of):
    content = {**results_of(*cases), "summary": summarize_cases(cases)}

    assert problem_of(content) == ""


def test_the_page_has_the_table(cases):
    page = write_html({**results_of(*cases), "summary": summarize_cases(cases)})

    assert "<h2>Over the best way without the port</h2>" in page
    assert "geometric mean of 2 over the best" in page


def test_a_report_of_none_is_no_best():
    assert Against().best is None
