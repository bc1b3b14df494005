"""The demo is what a newcomer sees first: it fits the terminal, and fails when the port is wrong."""

from __future__ import annotations

import sys

import pytest
import torch

pytest.importorskip("sklearn")

from porting.recipes.first_port import demo  # noqa: E402 - it needs scikit-learn


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Train for three epochs, measure for two rounds, and compile nothing; give torch its threads back."""
    before = torch.get_num_threads()
    monkeypatch.setattr(demo, "NUM_EPOCHS", 3)
    monkeypatch.setattr(demo, "NUM_ROUNDS", 2)
    monkeypatch.setattr(demo, "ENGINE", "replay")
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
def test_the_demo_compares_both_and_ends_well(capsys):
    assert demo.main() == 0

    output, errors = capsys.readouterr()
    assert [line for line in output.splitlines() if line.startswith("ok ")] != []
    assert "FAILED" not in output
    assert "CPU simulator" in output
    assert "eager time / ported time: " in output
    assert max(map(len, output.splitlines())) <= 80
    assert len(output.splitlines()) <= 40
    assert "epoch/s" not in errors


@pytest.mark.slow
def test_the_demo_fails_when_the_port_does_not_learn(monkeypatch, capsys):
    monkeypatch.setattr(demo, "MIN_ACCURACY", 1.01)

    assert demo.main() == 1
    assert "FAILED test accuracy of the port" in capsys.readouterr().out


def test_the_demo_fails_when_losses_differ():
    plain = demo.History([1.0, 0.5], [0.99])
    ported = demo.History([1.0, 0.50001], [0.99])

    assert [is_met for is_met, _line in demo._verdicts(plain, ported, is_simulator=True)] == [False, True]


def test_on_hardware_dropout_may_change_the_losses():
    plain = demo.History([1.0, 0.5], [0.99])
    ported = demo.History([1.1, 0.6], [0.99])

    assert [is_met for is_met, _line in demo._verdicts(plain, ported, is_simulator=False)] == [True, True]


def test_the_mean_loss_is_that_of_one_epoch():
    history = demo.History([4.0, 2.0, 1.0, 0.5], [0.5, 0.9])

    assert [history.mean_loss(0), history.mean_loss(1)] == [3.0, 0.75]


def test_without_scikit_learn_the_demo_names_the_extra(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "porting.recipes.first_port.workload", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)

    assert demo.main() == 1
    assert 'error[X001]: an optional dependency is not installed\n   = help: pip install "ipu-porting[recipes]"' in (
        capsys.readouterr().err
    )
