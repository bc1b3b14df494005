"""Turns time every call; no time is asserted here."""

from __future__ import annotations

import pytest

from porting.bench.turns import Turn, Turns, divide_times, time_calls, time_sides


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
