"""Calls are timed from one beginning, until there are enough or the time is up; engines that change are noted."""

from __future__ import annotations

import time

from porting.bench.moments import take_calls


def test_the_first_call_counts_from_the_beginning():
    moments = take_calls(lambda: None, began=time.perf_counter() - 5.0, num_calls=2)

    assert 5.0 <= moments.call_seconds[0] <= moments.call_seconds[1]


def test_a_slow_first_call_takes_nothing_of_the_time_of_the_others():
    began = time.perf_counter() - 5.0

    moments = take_calls(lambda: time.sleep(0.002), began=began, num_calls=1000, limit_seconds=0.01)

    assert 2 <= len(moments.call_seconds) < 1000


def test_an_engine_that_changes_between_calls_is_noted_with_the_call():
    engines = iter(["replay", "replay", "aot", "aot"])

    moments = take_calls(
        lambda: time.sleep(0.02), began=time.perf_counter(), num_calls=4, read_engine=lambda: next(engines)
    )

    assert [(engine["name"], engine["call"]) for engine in moments.engines] == [("replay", 1), ("aot", 3)]
    assert moments.engines[1]["seconds"] == moments.call_seconds[2]


def test_an_engine_is_not_asked_for_after_every_quick_call():
    asked = []

    take_calls(lambda: None, began=time.perf_counter(), num_calls=1000, read_engine=lambda: asked.append("") or "")

    assert len(asked) < 1000
