"""Eager, cold and warm processes take turns; each cold one has a cache of its own."""

from __future__ import annotations

import pytest

from porting.bench import curve_runs
from porting.bench.choices import BenchSettings
from porting.bench.curve_runs import measure_curve
from porting.bench.processes import ChildError
from porting.bench.workloads import Source

SETTINGS = BenchSettings(curve_runs=2, curve_seconds=4.0, threads=1)
SOURCE = Source("a:b", {"cache_dir": "kept"})


@pytest.fixture
def started(monkeypatch):
    """Let processes take what the test says, eager 12 calls at most, and keep what was started."""
    tasks = []

    def start(job, side, source, settings, *, environment, more, more_seconds):
        cache = source.arguments["cache_dir"].replace("\\", "/").rpartition("/")[2]
        tasks.append({"side": side, "cache": cache, "more_seconds": more_seconds, **more})
        calls = min(more["num_calls"], 12)
        seconds = [(number + 1.0) * (1.0 if side == "eager" else 0.5) for number in range(calls)]
        return {"call_seconds": seconds, "cpu_seconds": 1.0, "cache": "miss", "engines": []}

    monkeypatch.setattr(curve_runs, "run_job", start)
    return tasks


def test_there_are_as_many_steps_as_eager_has_time_for(started):
    curve = measure_curve(SOURCE, SETTINGS, engine="auto", steps_per_call=1)

    assert curve.steps == (1, 2, 5, 10)
    assert {task["num_calls"] for task in started[2:]} == {10}
    assert started[0]["seconds"] == 4.0
    assert all(task["more_seconds"] >= (task["seconds"] or 0.0) for task in started)


def test_sides_take_turns_after_processes_that_are_not_counted(started):
    measure_curve(SOURCE, SETTINGS, engine="auto", steps_per_call=1)

    order = [(task["side"], task["cache"]) for task in started]
    assert order[:2] == [("eager", "kept"), ("ported", "kept")]
    assert order[2:5] == [("eager", "kept"), ("ported", "cold-0"), ("ported", "kept")]
    assert order[5:] == [("ported", "kept"), ("ported", "cold-1"), ("eager", "kept")]


def test_an_engine_that_only_takes_what_is_there_finds_what_was_compiled_for_it(started):
    measure_curve(SOURCE, SETTINGS, engine="ready", steps_per_call=1)

    assert [(task["cache"], task["engine"], task["compiles"]) for task in started[1:2]] == [("warm", "auto", True)]
    assert {task["engine"] for task in started[2:]} == {None}
    assert "kept" not in {task["cache"] for task in started if task["side"] == "ported"}


def test_what_is_counted_never_waits_for_a_compiler(started):
    measure_curve(SOURCE, SETTINGS, engine="auto", steps_per_call=1)

    assert [task["compiles"] for task in started] == [False, True] + [False] * 6


def test_a_process_that_fails_is_the_reason_why_there_is_no_curve(monkeypatch):
    def fail(*_arguments, **_settings):
        raise ChildError("eager: no such data")

    monkeypatch.setattr(curve_runs, "run_job", fail)

    curve = measure_curve(SOURCE, SETTINGS, engine="auto", steps_per_call=1)

    assert (curve.steps, curve.reason) == ((), "eager: no such data")


@pytest.mark.slow
def test_a_curve_of_real_processes_has_both_sides(monkeypatch):
    # with the bytecode that is there: to make that of all torch anew takes longer than the rest
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    source = Source("porting.bench.suite:load", {"name": "mushrooms", "choices": {"engine": "replay"}})

    settings = BenchSettings(curve_runs=1, curve_seconds=0.01, threads=1)
    curve = measure_curve(source, settings, engine="replay", steps_per_call=100)

    assert curve.reason == ""
    assert curve.steps[0] == 100
    assert curve.cold.seconds[0].median > 0
    assert [engine["name"] for engine in curve.warm.engines[0]] == ["replay"]
