"""Calls are timed from one beginning, until there are enough or the time is up; engines that change are noted."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from porting.bench.moments import take_calls


@pytest.fixture
def clock(monkeypatch):
    """Begin at 5 seconds, and let time pass only in calls that say so."""
    clock = SimpleNamespace(now=5.0)
    monkeypatch.setattr("porting.bench.moments.time.perf_counter", lambda: clock.now)
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
