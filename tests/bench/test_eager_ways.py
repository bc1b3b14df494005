"""Every way has a process of its own and takes turns; one that the eager side goes anyway shares its turns."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.eager_ways import EagerWays
from porting.bench.measure import measure
from porting.bench.workloads import Source

from .conftest import QUICK, make_workload

MUSHROOMS = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {"engine": "replay"}})


def test_the_way_that_eager_goes_anyway_shares_its_turns():
    report = measure(make_workload(), settings=dataclasses.replace(QUICK, against=("fused",)))

    assert report.against.best == "fused"
    assert report.against.speed_up == report.speed_up


def test_a_layout_that_no_weight_can_have_is_not_timed():
    settings = dataclasses.replace(QUICK, against=("channels-last", "plain"))

    with EagerWays(make_workload(), None, settings) as ways:
        against = ways.sum_up({}, steps_per_call=1)

    assert against.ways["channels-last"].reason == "no weight has four dimensions"
    assert against.ways["plain"].reason == "no other process can make the model"


@pytest.mark.slow
def test_ways_take_turns_in_processes_of_their_own():
    settings = dataclasses.replace(QUICK, against=("plain", "fused"))

    report = measure(MUSHROOMS.load(0), settings=settings, source=MUSHROOMS)

    rounds = [way.speed_up.rounds for way in report.against.ways.values()]
    assert [len(ratios) for ratios in rounds] == [QUICK.rounds] * 2
    assert rounds[0] != rounds[1] == report.speed_up.rounds


@pytest.mark.slow
def test_a_process_that_ends_is_a_way_less():
    broken = Source("no_such_module:load", {})

    with EagerWays(make_workload(), broken, dataclasses.replace(QUICK, against=("plain",))) as ways:
        ways.wait()
        against = ways.sum_up({}, steps_per_call=1)

    assert "No module named 'no_such_module'" in against.ways["plain"].reason
