"""The benchmark times the same work on both sides and writes what its docstring says; no time is asserted here."""

from __future__ import annotations

import json
import re

import pytest
import torch

from porting.bench import step_time
from porting.bench.step_time import CASES, Case, main, measure
from porting.models import make_cnn, make_mlp

SMALL = (
    Case("small MLP", lambda: make_mlp((6, 8, 10)), (4, 6), "Adam"),
    Case("small CNN", lambda: make_cnn(image_size=4), (4, 1, 4, 4)),
)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Give each side turns of a millisecond, and torch its threads back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(step_time, "_TURN_SECONDS", 0.001)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small(monkeypatch):
    """Measure small models instead of those that the bar is for."""
    monkeypatch.setattr(step_time, "CASES", SMALL)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("fused", [False, True], ids=["default", "fused"])
def test_both_sides_have_the_same_losses(case, fused):
    assert measure(case, rounds=1, fused=fused).loss_difference <= 1e-5


def test_every_side_has_a_time_for_every_round():
    result = measure(SMALL[0], rounds=3)

    assert [len(side.wall_seconds) for side in (result.eager, result.simulated)] == [3, 3]


def test_the_bar_is_measured_on_the_mlp_and_the_cnn_with_both_optimizers():
    measured = {(case.name.split()[0], case.optimizer) for case in CASES}

    assert {("MLP", "SGD"), ("MLP", "Adam"), ("CNN", "SGD"), ("CNN", "Adam")} <= measured
    assert sum(p.numel() for p in CASES[0].make_model().parameters()) == 784 * 1000 + 1000 * 1000 + 1000 * 10 + 2010


def test_the_table_states_the_conditions_and_has_a_row_for_each_case(small, capsys):
    assert main(["--rounds", "1", "--threads", "1"]) == 0

    output = capsys.readouterr().out
    assert f"torch {torch.__version__}\n1 thread(s), float32, 1 rounds" in output
    assert [case.name in output for case in SMALL] == [True, True]
    assert max(map(len, output.splitlines())) <= 120


def test_the_json_has_the_documented_fields(small, tmp_path, capsys):
    main(["--rounds", "1", "--json", str(tmp_path / "times.json")])

    report = json.loads((tmp_path / "times.json").read_text())
    documented = set(re.findall(r"`(\w+)`", step_time.__doc__))
    (first, _second) = report["cases"]
    nested = {*first["eager"], *first["eager"]["wall_seconds"], *first["ratio"]}
    assert {*report, *first, *nested} == documented


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "load", "is_advised"), [("2", 9.0, True), ("1", 9.0, False), ("2", 0.1, False)])
def test_several_threads_on_a_busy_machine_are_advised_against(small, monkeypatch, capsys, threads, load, is_advised):
    monkeypatch.setattr(step_time.os, "getloadavg", lambda: (load, load, load), raising=False)
    monkeypatch.setattr(step_time.os, "cpu_count", lambda: 2)

    main(["--rounds", "1", "--threads", threads])

    assert ("try --threads 1" in capsys.readouterr().out) == is_advised
