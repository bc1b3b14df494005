"""A report of tuning is a table for people, and data that can be kept."""

from __future__ import annotations

import json

import pytest

from porting.engines.calls.executable import Choice
from porting.engines.contract.report import Candidate, TuningReport
from porting.support.interleaved import Interval


@pytest.fixture
def report():
    """Give a report of one candidate that won and one that is out."""
    fast = Candidate(
        Choice("aot"), compile_seconds=9.0, cpu_seconds=0.001, wall_seconds=0.002, speed_up=Interval(2.0, 1.9, 2.1)
    )
    out = Candidate(Choice("aot", channels_last=True), problem="the compiler crashed")
    return TuningReport(Choice("aot"), (fast, out), seconds=12.0, notes=("a note",))


def test_it_survives_json(report):
    assert TuningReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


def test_the_entries_of_the_cache_that_there_are_can_be_read(report):
    kept = report.to_dict()["candidates"][1]

    assert kept["variant"]["channels_last"]
    assert "choice" not in kept


def test_the_choice_is_marked_and_what_is_out_has_its_reason(report):
    lines = str(report).splitlines()

    assert lines[1].startswith("*  aot ")
    assert lines[2].endswith("out: the compiler crashed")
    assert lines[-1] == "a note"


def test_the_summary_is_one_line(report):
    assert report.summary == "aot: 2x replay (chosen of 2, 1 of them out, in 12 s)"


def test_a_choice_that_was_not_measured_has_no_speed_up():
    assert TuningReport(Choice()).speed_up is None
