"""What `porting.bench.start_up` says of processes that trained one step."""

from __future__ import annotations

import json

import pytest

from porting.bench import start_up
from porting.bench.start_up import main, measure_start_up, start_up_table


@pytest.fixture
def costs(monkeypatch):
    """Let processes cost what the test says, and keep the programs that were started."""
    started = []

    def start(program, environment):
        started.append((program, environment))
        cpu = 1.0
        if "'eager'" in program:
            cpu = 4.0
        elif "'ported'" in program:
            cpu = 8.0 if len([text for text, _ in started if text == program]) == 1 else 2.0
        own = {"first_step_cpu_seconds": cpu / 2, "loads_compiler": cpu > 3} if "run(" in program else {}
        return {"cpu_seconds": cpu, "seconds": 2 * cpu, **own}

    monkeypatch.setattr(start_up, "_start", start)
    return started


def test_warm_and_cold_starts_are_compared_with_eager(costs):
    result = measure_start_up({"small": "some.module:small"}, engine="aot", rounds=3)

    model = result["models"]["small"]
    assert (model["cold_over_eager_cpu"], model["warm_over_eager_cpu"]) == (2.0, 0.5)
    assert model["warm_over_cold_first_step_cpu"] == 0.25


def test_eager_and_warm_starts_take_turns(costs):
    measure_start_up({"small": "some.module:small"}, rounds=2)

    sides = ["eager" if "'eager'" in program else "ported" for program, _ in costs if "run(" in program]
    # one eager start that is not counted, the cold one, then the turns
    assert sides == ["eager", "ported", "eager", "ported", "ported", "eager"]


def test_processes_keep_bytecode_whatever_this_one_was_told(costs, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PORTING_ENGINE", "replay")

    measure_start_up({"small": "some.module:small"}, rounds=1)

    for _program, environment in costs:
        assert "PYTHONPYCACHEPREFIX" in environment
        assert not {"PYTHONDONTWRITEBYTECODE", "PORTING_ENGINE"} & set(environment)


def test_the_table_has_a_line_for_each_side(costs):
    lines = start_up_table(measure_start_up({"small": "some.module:small"}, engine="aot", rounds=2))

    assert any(line.startswith("  ported, warm") and line.endswith("not loaded") for line in lines)
    assert any("CPU time over eager: cold 2.00, warm 0.50" in line for line in lines)


def test_the_command_writes_all_values(costs, tmp_path, capsys):
    file = tmp_path / "start_up.json"

    assert main(["--models", "mlp", "--rounds", "1", "--json", str(file)]) == 0
    assert json.loads(file.read_text())["models"]["mlp"]["sides"]["eager"]["cpu_seconds"]["median"] == 4.0
    assert "mlp, engine ready" in capsys.readouterr().out


@pytest.mark.slow
def test_both_programs_train_the_same_step():
    result = measure_start_up({"mlp": start_up.MODELS["mlp"]}, engine="replay", rounds=1)

    sides = result["models"]["mlp"]["sides"]
    assert sides["warm"]["loss"] == pytest.approx(sides["eager"]["loss"], rel=1e-6)
    assert not sides["warm"]["loads_compiler"]


def test_a_program_that_fails_is_an_error_with_what_it_said():
    with pytest.raises(RuntimeError, match="exit status 1: .*nothing here"):
        start_up._start("raise SystemExit('nothing here')", start_up.child_environment())
