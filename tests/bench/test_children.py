"""Processes measure turns, memory and start-up for themselves, and say how they ended where they cannot."""

from __future__ import annotations

import textwrap

import pytest

from porting.bench import children
from porting.bench.children import measure_start_up, run_job, start_side
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
