"""The best way is the one that the port is least ahead of, and a way that cannot train is none."""

from __future__ import annotations

import dataclasses

import pytest

from porting.bench.against import EagerWays, sum_up_ways
from porting.bench.measure import measure
from porting.bench.turns import Turns
from porting.bench.workloads import Source

from .conftest import QUICK, make_workload


def turns_of(*seconds: float) -> Turns:
    return Turns(call_seconds=tuple((second,) for second in seconds), cpu_seconds=tuple(2 * one for one in seconds))


def test_the_best_way_is_the_one_that_takes_the_least_time():
    turns = {"plain": turns_of(6.0, 9.0), "fused": turns_of(4.0, 6.0), "ported": turns_of(2.0, 3.0)}

    against = sum_up_ways(turns, ["plain", "fused"], reasons={}, steps_per_call=2)

    assert (against.best, against.speed_up.wall.median) == ("fused", 2.0)
    assert against.ways["plain"].speed_up.rounds == (3.0, 3.0)
    assert against.ways["fused"].cpu_seconds == 5.0
    assert against.ways["fused"].step_seconds.median == 2.5


def test_a_way_without_turns_says_why_and_is_not_the_best():
    turns = {"plain": turns_of(6.0), "ported": turns_of(2.0)}

    against = sum_up_ways(turns, ["plain", "compile"], reasons={"compile": "no compiler"}, steps_per_call=1)

    assert against.best == "plain"
    assert (against.ways["compile"].speed_up, against.ways["compile"].reason) == (None, "no compiler")


def test_where_no_way_was_asked_for_there_is_no_best():
    against = sum_up_ways({"ported": turns_of(2.0)}, [], reasons={}, steps_per_call=1)

    assert (against.best, against.speed_up, dict(against.ways)) == (None, None, {})


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
