"""Turns time every call; no time is asserted here."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from porting.bench.turns import Turn, Turns, divide_times, take_calls, time_calls, time_sides


def test_who_begins_changes_from_round_to_round():
    calls, rounds = [], []

    def side(name):
        return lambda number: time_calls(lambda: calls.append(name), number)

    time_sides(
        {"a": side("a"), "b": side("b")},
        rounds=2,
        calls_per_turn=2,
        after_round=rounds.append,
    )

    assert "".join(calls) == "aabb" + "bbaa"
    assert rounds == [1, 2]


def test_every_call_has_a_time():
    turns = time_sides({"a": lambda number: Turn((1.0,) * number, 2.0)}, rounds=3, calls_per_turn=4)["a"]

    assert turns.call_seconds == ((1.0,) * 4,) * 3
    assert turns.cpu_seconds == (2.0,) * 3


def test_a_step_is_a_part_of_its_call():
    turns = Turns(call_seconds=((2.0, 4.0, 6.0),), cpu_seconds=(4.0,))

    assert turns.spread(steps_per_call=2).median == 2.0


def test_a_ratio_is_made_round_by_round():
    slow = Turns(call_seconds=((2.0,), (20.0,)), cpu_seconds=(3.0, 30.0))
    quick = Turns(call_seconds=((1.0,), (10.0,)), cpu_seconds=(1.0, 10.0))

    ratios = divide_times(slow, quick)

    assert (ratios.wall.median, ratios.cpu.median) == (2.0, pytest.approx(3.0))
    assert ratios.rounds == (2.0, 2.0)


@pytest.fixture
def clock(monkeypatch):
    """Begin at 5 seconds, and let time pass only in calls that say so."""
    clock = SimpleNamespace(now=5.0)
    monkeypatch.setattr("porting.bench.turns.time.perf_counter", lambda: clock.now)
    return clock


def taking(clock, seconds):
    """Return a call that takes so long by `clock`."""

    def call():
        clock.now += seconds

    return call


def test_the_first_call_counts_from_the_beginning(clock):
    moments = take_calls(taking(clock, 2.0), began=0.0, num_calls=2)

    assert moments.call_seconds == [7.0, 9.0]


def test_a_slow_first_call_takes_nothing_of_the_time_of_the_others(clock):
    moments = take_calls(taking(clock, 1.0), began=0.0, num_calls=1000, limit_seconds=3.0)

    assert moments.call_seconds == [6.0, 7.0, 8.0, 9.0, 10.0]


def test_an_engine_that_changes_between_calls_is_noted_with_the_call(clock):
    engines = iter(["replay", "replay", "aot", "aot"])

    moments = take_calls(taking(clock, 0.02), began=0.0, num_calls=4, read_engine=lambda: next(engines))

    assert [(engine["name"], engine["call"]) for engine in moments.engines] == [("replay", 1), ("aot", 3)]
    assert moments.engines[1]["seconds"] == moments.call_seconds[2]


def test_an_engine_is_not_asked_for_after_every_quick_call(clock):
    asked = []

    take_calls(taking(clock, 1e-5), began=0.0, num_calls=1000, read_engine=lambda: asked.append("") or "")

    assert len(asked) == 1
