"""Contestants take turns, and their ratio is that of the same rounds."""

from __future__ import annotations

import itertools
import time

import pytest

from porting.support import interleaved
from porting.support.interleaved import Interval, Timing, ratio, time_interleaved


@pytest.fixture
def clock(monkeypatch):
    """Let every look at a clock find it a second later."""
    for name in ("perf_counter", "process_time"):
        ticks = itertools.count()
        monkeypatch.setattr(interleaved.time, name, lambda ticks=ticks: float(next(ticks)))


def test_contestants_take_turns_and_who_begins_changes():
    calls = []

    time_interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3)

    assert "".join(calls) == "ab" + "ba" + "ab"


def test_a_turn_repeats_its_contestant():
    calls = []

    time_interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=1, repeats=3)

    assert "".join(calls) == "aaabbb"


def test_seconds_are_those_of_one_call(clock):
    timings = time_interleaved({"a": lambda: None}, rounds=2, repeats=4)

    assert timings == {"a": Timing(wall_seconds=(0.25, 0.25), cpu_seconds=(0.25, 0.25))}


def test_sleeping_takes_time_on_the_clock_but_not_on_the_processor():
    timing = time_interleaved({"sleep": lambda: time.sleep(0.05)}, rounds=1)["sleep"]

    assert timing.wall.median >= 0.05
    assert timing.cpu.median < timing.wall.median


def test_a_ratio_compares_rounds_and_not_medians():
    # every round of the first is twice as long, although the machine slowed down between the rounds
    slow, quick = Timing((2.0, 20.0, 200.0), ()), Timing((1.0, 10.0, 100.0), ())

    assert ratio(slow, quick) == Interval(2.0, 2.0, 2.0)


def test_the_interval_of_a_ratio_lies_around_its_median():
    several = ratio(Timing((1.0, 1.2, 0.9, 1.1, 1.0, 1.3, 0.8), ()), Timing((1.0,) * 7, ()))

    assert 0.8 <= several.low < several.median < several.high <= 1.3


def test_more_confidence_takes_a_wider_interval():
    timings = Timing(tuple(1.0 + 0.01 * i for i in range(30)), ()), Timing((1.0,) * 30, ())
    narrow, wide = ratio(*timings, confidence=0.5), ratio(*timings, confidence=0.99)

    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_ratio_of_processor_time_is_another_than_that_of_the_clock():
    one, other = Timing((1.0, 1.0), (6.0, 6.0)), Timing((2.0, 2.0), (2.0, 2.0))

    assert ratio(one, other).median == 0.5
    assert ratio(one, other, by_processor=True).median == 3.0


def test_no_round_begins_after_the_given_seconds():
    calls = []

    time_interleaved({"a": lambda: calls.append("a")}, rounds=100, at_most_seconds=0.0)

    assert calls == ["a"]


def test_a_log_gets_no_progress_bar(capsys):
    time_interleaved({"a": lambda: None}, rounds=2, progress="waiting")

    assert capsys.readouterr() == ("", "")
