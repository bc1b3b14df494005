"""Processes measure turns, memory and start-up for themselves, and say how they ended where they cannot."""

from __future__ import annotations

import textwrap

import pytest

from porting.bench import children
from porting.bench.children import measure_curve, measure_start_up, run_job, start_side
from porting.bench.choices import BenchSettings
from porting.bench.processes import ChildError
from porting.bench.workloads import Source

TALKATIVE = """
    import sys
    import torch
    from porting.bench.workloads import Workload
    from porting import PortOptions

    class Talkative(torch.nn.Linear):
        def forward(self, x):
            print("forward", flush=True)
            return super().forward(x)

    def load(**_arguments):
        print("loading")
        model = Talkative(3, 2)
        batch = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return Workload(model, torch.nn.CrossEntropyLoss(), batch, optimizer, PortOptions(), "talkative")

    def broken(**_arguments):
        raise ValueError("no such data")
"""


@pytest.fixture
def loaders(tmp_path, monkeypatch):
    """Put the module `loaders_of_sides` where child processes find it; give a function that names its loaders."""
    (tmp_path / "loaders_of_sides.py").write_text(textwrap.dedent(TALKATIVE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: Source(f"loaders_of_sides:{name}", {})


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_each_turn_times_as_many_calls_as_it_is_asked_for(loaders):
    with start_side("eager", loaders("load"), BenchSettings(threads=1)) as child:
        child.ask()
        turns = [child.ask(number) for number in (3, 1)]

    assert [len(turn.call_seconds) for turn in turns] == [3, 1]
    assert all(seconds > 0 for turn in turns for seconds in (*turn.call_seconds, turn.cpu_seconds))


def test_the_process_ends_with_the_context(loaders):
    with start_side("eager", loaders("load"), BenchSettings()) as child:
        pass

    assert child.process.has_ended()


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_side_that_cannot_be_made_is_an_error_with_its_reason(loaders):
    with start_side("eager", loaders("broken"), BenchSettings()) as child:
        with pytest.raises(ChildError, match="eager: the process ended with exit status 1.*no such data"):
            child.ask()


# of what stands for Python, the program outlives a kill for a moment
@pytest.mark.slow
def test_a_side_that_dies_is_an_error(loaders):
    with start_side("eager", loaders("load"), BenchSettings()) as child:
        child.ask()
        child.process.kill()
        with pytest.raises(ChildError, match="signal 9"):
            child.ask(1)


# -- start-up ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def starts(monkeypatch):
    """Let processes cost what the test says, and keep what was started."""
    started = []

    def start(job, side, source, settings, *, environment):
        kind = "cold" if "cache_dir" in source.arguments else side
        started.append((kind, environment))
        cpu = {"eager": 4.0, "cold": 8.0, "ported": 2.0}[kind]
        return {
            "cpu_seconds": cpu,
            "wall_seconds": 2 * cpu,
            "torch_cpu_seconds": 1.0,
            "import_cpu_seconds": 0.5,
            "first_step_cpu_seconds": cpu / 2,
            "loads_compiler": kind != "ported",
        }

    monkeypatch.setattr(children, "run_job", start)
    return started


def test_warm_and_cold_starts_stand_beside_those_of_eager(starts):
    start_up = measure_start_up(Source("a:b"), BenchSettings(start_up_runs=3, cold_starts=1))

    cpu = start_up.eager_cpu_seconds, start_up.cold_cpu_seconds, start_up.ported_cpu_seconds
    first = start_up.eager_first_step_cpu_seconds, start_up.cold_first_step_cpu_seconds
    assert cpu == (4.0, 8.0, 2.0)
    assert (first, start_up.ported_first_step_cpu_seconds) == ((2.0, 4.0), 1.0)
    assert (start_up.num_runs, start_up.loads_compiler) == (3, False)


def test_eager_and_warm_starts_take_turns(starts):
    measure_start_up(Source("a:b"), BenchSettings(start_up_runs=2, cold_starts=1))

    # one start of each side that is not counted, the cold one, then the turns
    assert [kind for kind, _ in starts] == ["eager", "ported", "cold", "eager", "ported", "ported", "eager"]


def test_cold_starts_are_made_only_where_they_are_asked_for(starts):
    assert measure_start_up(Source("a:b"), BenchSettings(start_up_runs=1)).cold_cpu_seconds is None


def test_processes_keep_bytecode_whatever_this_one_was_told(starts, monkeypatch):
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PORTING_ENGINE", "replay")

    measure_start_up(Source("a:b"), BenchSettings(start_up_runs=1))

    for _kind, environment in starts:
        assert environment["PYTHONPYCACHEPREFIX"].endswith("bytecode")
        assert not {"PYTHONDONTWRITEBYTECODE", "PORTING_ENGINE"} & set(environment)


def test_processes_keep_bytecode_where_the_user_says(starts, monkeypatch):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "there")

    measure_start_up(Source("a:b"), BenchSettings(start_up_runs=1))

    assert {environment["PYTHONPYCACHEPREFIX"] for _kind, environment in starts} == {"there"}


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_job_that_fails_is_an_error_with_what_was_raised(loaders):
    with pytest.raises(ChildError, match="eager: ValueError: no such data"):
        run_job("start-up", "eager", loaders("broken"), BenchSettings())


# -- curves ------------------------------------------------------------------------------------------------------------

CURVE_SETTINGS = BenchSettings(curve_runs=2, curve_seconds=4.0, threads=1)
CURVE_SOURCE = Source("a:b", {"cache_dir": "kept"})


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

    monkeypatch.setattr(children, "run_job", start)
    return tasks


def test_there_are_as_many_steps_as_eager_has_time_for(started):
    curve = measure_curve(CURVE_SOURCE, CURVE_SETTINGS, engine="auto", steps_per_call=1)

    assert curve.steps == (1, 2, 5, 10)
    assert {task["num_calls"] for task in started[2:]} == {10}
    assert started[0]["seconds"] == 4.0
    assert all(task["more_seconds"] >= (task["seconds"] or 0.0) for task in started)


def test_sides_take_turns_after_processes_that_are_not_counted(started):
    measure_curve(CURVE_SOURCE, CURVE_SETTINGS, engine="auto", steps_per_call=1)

    order = [(task["side"], task["cache"]) for task in started]
    assert order[:2] == [("eager", "kept"), ("ported", "kept")]
    assert order[2:5] == [("eager", "kept"), ("ported", "cold-0"), ("ported", "kept")]
    assert order[5:] == [("ported", "kept"), ("ported", "cold-1"), ("eager", "kept")]


def test_an_engine_that_only_takes_what_is_there_finds_what_was_compiled_for_it(started):
    measure_curve(CURVE_SOURCE, CURVE_SETTINGS, engine="ready", steps_per_call=1)

    assert [(task["cache"], task["engine"], task["compiles"]) for task in started[1:2]] == [("warm", "auto", True)]
    assert {task["engine"] for task in started[2:]} == {None}
    assert "kept" not in {task["cache"] for task in started if task["side"] == "ported"}


def test_what_is_counted_never_waits_for_a_compiler(started):
    measure_curve(CURVE_SOURCE, CURVE_SETTINGS, engine="auto", steps_per_call=1)

    assert [task["compiles"] for task in started] == [False, True] + [False] * 6


def test_a_process_that_fails_is_the_reason_why_there_is_no_curve(monkeypatch):
    def fail(*_arguments, **_settings):
        raise ChildError("eager: no such data")

    monkeypatch.setattr(children, "run_job", fail)

    curve = measure_curve(CURVE_SOURCE, CURVE_SETTINGS, engine="auto", steps_per_call=1)

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
