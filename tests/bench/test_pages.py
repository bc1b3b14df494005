"""Tables fit a terminal, say what cases have in common once, and what below them could not stand in them."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.children import Memory, StartUp
from porting.bench.pages import (
    lay_out_machinery,
    lay_out_orders,
    lay_out_result,
    lay_out_start_up,
    lay_out_table,
    list_failures,
    name_cases,
    write_seconds,
)

from .conftest import make_record


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


def test_titles_have_only_the_choices_that_vary():
    records = [make_record(), make_record()]
    records[1]["choices"] = {**records[1]["choices"], "batch": 8, "accumulation": 2}

    assert name_cases(records) == ("replay", ["tiny", "tiny batch 8 2 accumulated"])


COLD_AND_WARM = StartUp(
    eager_cpu_seconds=4.0,
    ported_cpu_seconds=2.0,
    cold_cpu_seconds=8.0,
    eager_first_step_cpu_seconds=2.0,
    ported_first_step_cpu_seconds=1.0,
    cold_first_step_cpu_seconds=4.0,
    torch_cpu_seconds=1.0,
    import_cpu_seconds=0.5,
    loads_compiler=False,
    num_runs=3,
)


def test_warm_and_cold_starts_are_compared_with_eager(report):
    started = dataclasses.replace(report, start_up=COLD_AND_WARM)

    page = "\n".join(lay_out_result(started.to_dict()))
    assert "over eager: cold x2.00, warm x0.50; first step, warm over cold: x0.25" in page
    assert "torch's compiler not loaded" in page
    assert max(map(len, page.splitlines())) <= 130
    assert any("cold x2.00" in line for line in lay_out_start_up([make_record(report=started)]))


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


def test_losses_that_differ_are_a_failure(report):
    plain = report.to_dict()
    plain["parity"] = {**plain["parity"], "verdict": "fail", "difference": 0.25}

    (finding,) = list_failures(plain)
    assert (finding.code, finding.message) == ("T003", "the losses differ by 2.5e-01, more than 1e-05 allows")


@pytest.mark.parametrize(("num_referenced", "is_told"), [(1, True), (None, False), (99, False)])
def test_where_rounding_decides_the_rest_it_is_told_of_how_many_losses_float64_speaks(report, num_referenced, is_told):
    plain = report.to_dict()
    errors = {"reference_eager": 1e-3, "reference_ported": 1e-3, "num_referenced": num_referenced}
    plain["parity"] = {**plain["parity"], "verdict": "rounding", **errors}

    text = " ".join(lay_out_result(plain))

    assert ("in the first 1 losses; after them rounding decides" in text) is is_told


def test_calls_that_the_device_did_not_count_are_a_failure(report):
    plain = report.to_dict()
    plain["device"] = {**plain["device"], "calls_counted": 1, "is_proven": False}

    assert [finding.code for finding in list_failures(plain)] == ["T004"]


@pytest.mark.parametrize(
    ("value", "text"), [(9.996e-4, "1.00 ms"), (0.9999, "1.00 s"), (123.4, "123 s"), (1.5e-5, "15.0 us")]
)
def test_durations_have_three_digits(value, text):
    assert write_seconds(value) == text
