"""The page of a report says what the start cost, what was copied, and which of its times do not count."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.children import StartUp
from porting.bench.pages import lay_out_result, list_failures, write_layout_copies

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


def test_a_report_says_how_many_copies_there_are_and_of_what(report):
    kinds = {"operators": (1, 100), "weights": (5, 2**20), "others": (8, 2**21)}
    side = {kind: {"number": number, "bytes": size, "seconds": 0.1} for kind, (number, size) in kinds.items()}
    copies = {"eager": None, "ported": {**side, "number": 14, "share": 0.021}}

    (line,) = [line for line in lay_out_result({**report.to_dict(), "layout_copies": copies}) if "oneDNN" in line]

    told = "ported 14 (1 by operators, 5 of weights by oneDNN, 8 of other tensors by oneDNN), 3.0 MiB, 2.1 % of a step"
    assert line.strip() == told
    assert write_layout_copies(copies["ported"]) == "14 (2 %)"


def test_a_report_whose_copies_were_not_counted_says_nothing(report):
    assert not any("layout copies" in line for line in lay_out_result(report.to_dict()))
