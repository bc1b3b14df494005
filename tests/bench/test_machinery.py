"""What a call takes beyond its operators is measured in parts, none of which is more than the whole."""

from __future__ import annotations

import dataclasses

import pytest

from porting import PortOptions
from porting.bench.measure import measure

from .conftest import QUICK, make_record, make_workload, results_of

GROWTH = dataclasses.replace(QUICK, growth=True)


@pytest.mark.parametrize("options", [{}, {"accumulation": 2, "replicas": 2}], ids=str)
def test_each_part_is_measured_and_less_than_the_whole(options, problem_of):
    report = measure(make_workload(PortOptions(engine="replay", **options)), settings=GROWTH)

    machinery = report.machinery
    assert 0 < machinery.capture_seconds < machinery.first_call_seconds
    assert 0 < machinery.around_seconds < machinery.call_seconds
    assert 0 < machinery.beyond_seconds < machinery.call_seconds
    assert machinery.plan_seconds > 0
    assert report.device.is_proven
    assert problem_of(results_of(make_record(report=report))) == ""


def test_it_is_left_out_unless_it_is_asked_for(report):
    assert (report.machinery.call_seconds, report.machinery.reason) == (None, "not asked for")
