"""A change is one that noise does not explain, and a machine's difference is named."""

from __future__ import annotations

import copy

import pytest

from porting.bench.comparison import compare_results, make_comparison_table
from porting.bench.processes import Case
from porting.bench.results import ResultFile

from .conftest import make_record

CASE = Case(name="tiny", target="tiny", loader="a:b", arguments={})


def run_of(report, rounds, *, name="tiny"):
    record = copy.deepcopy(make_record(name=name, report=report))
    record["result"]["speed_up"]["rounds"] = rounds
    content = ResultFile([CASE]).content
    return {**content, "cells": [record]}


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        ([2.0, 2.1, 1.9, 2.0, 2.05], "faster"),
        ([0.5, 0.52, 0.48, 0.5, 0.51], "slower"),
        ([1.0, 1.01, 0.99, 1.0, 1.02], "same within noise"),
        ([0.5, 1.6, 0.9, 1.4, 1.1], "same within noise"),
    ],
)
def test_the_verdict_is_about_the_ratio_to_eager(report, later, verdict):
    (change,) = compare_results(run_of(report, [1.0, 1.02, 0.98, 1.01, 0.99]), run_of(report, later))

    assert change.verdict == verdict


def test_a_run_of_a_version_that_had_fewer_choices_is_compared_with(report, read_back):
    earlier = run_of(report, [1.0])
    del earlier["cells"][0]["choices"]["order"]

    changes = compare_results(read_back(earlier), run_of(report, [1.0]))

    assert [change.verdict for change in changes] == ["same within noise"]


def test_a_change_of_a_percent_does_not_count_however_sure_it_is(report):
    (change,) = compare_results(run_of(report, [1.0] * 5), run_of(report, [1.01] * 5))

    assert change.verdict == "same within noise"


def test_cases_are_matched_by_name_and_choices(report):
    changes = compare_results(run_of(report, [1.0], name="old"), run_of(report, [1.0], name="new"))

    assert [(change.title, change.verdict) for change in changes] == [("new replay", "new"), ("old replay", "gone")]


def test_a_case_without_a_result_is_not_comparable(report):
    later = run_of(report, [1.0])
    later["cells"][0]["result"] = None

    assert compare_results(run_of(report, [1.0]), later)[0].verdict == "not comparable"


def test_another_machine_is_named(report):
    earlier, later = run_of(report, [1.0]), run_of(report, [1.0])
    earlier["machine"] = {**earlier["machine"], "torch": "2.0.1"}

    assert "torch: 2.0.1 then" in make_comparison_table(earlier, later).notes[0]


def test_an_interrupted_earlier_run_is_called_so(report):
    assert "which was interrupted" in make_comparison_table(run_of(report, [1.0]), run_of(report, [1.0])).about
