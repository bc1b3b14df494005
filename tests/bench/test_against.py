"""The best way is the one that the port is least ahead of, and a way that cannot train is none."""

from __future__ import annotations

from porting.bench.against import sum_up_ways
from porting.bench.turns import Turns


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
