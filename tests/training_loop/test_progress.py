"""One bar on a terminal, above which stands what a program prints; quiet elsewhere."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn

from porting import fit, to_ipu
from porting.training_loop import progress
from tests.training_loop.small_training import make_loader, make_port


@pytest.fixture
def terminal(capsys, monkeypatch):
    """Let the streams that are captured be a terminal."""
    monkeypatch.setattr(progress, "_is_terminal", lambda: True)
    return capsys


def test_a_terminal_shows_one_bar_with_epochs_calls_and_metrics(terminal):
    fit(make_port()[0], make_loader(), epochs=2, validation=make_loader(6))

    said = terminal.readouterr().err
    assert "epoch 1/2" in said
    assert "epoch 2/2: 100%" in said
    assert "4/4" in said
    assert "val_loss=" in said


@pytest.mark.parametrize("settings", [{}, {"progress": False}], ids=str)
def test_nothing_is_shown_without_a_terminal(settings, capsys):
    ported, _optimizer = make_port()
    ported.compile(*next(iter(make_loader())))
    capsys.readouterr()

    fit(ported, make_loader(), epochs=1, **settings)

    assert capsys.readouterr().err == ""


def test_nothing_is_shown_on_a_terminal_when_it_is_switched_off(terminal):
    fit(make_port()[0], make_loader(), epochs=1, progress=False)

    assert "epoch" not in terminal.readouterr().err


def test_what_is_printed_stands_on_lines_of_its_own(terminal):
    fit(make_port()[0], make_loader(), epochs=1, after_call=lambda _returned: print("a line", "of two parts"))  # noqa: T201

    said = terminal.readouterr().out
    assert said.count("a line of two parts\n") == 4
    assert "%" not in said


def test_a_line_that_has_not_ended_is_written_when_the_bar_is_gone(terminal):
    fit(make_port()[0], make_loader(), epochs=1, after_call=lambda _returned: print("x", end=""))  # noqa: T201

    assert terminal.readouterr().out == "xxxx"


def test_streams_are_as_before_when_the_training_has_ended(terminal):
    before = sys.stdout, sys.stderr

    fit(make_port()[0], make_loader(), epochs=1)

    assert (sys.stdout, sys.stderr) == before


def test_a_notebook_shows_it_although_it_has_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_is_notebook", lambda: True)

    fit(make_port()[0], make_loader(), epochs=1)

    assert "epoch 1/1: 100%" in capsys.readouterr().err


def test_the_bar_says_since_which_call_the_loss_is_no_number(terminal):
    ported = to_ipu(nn.Linear(4, 1), nn.MSELoss(), device="sim")
    good, bad = torch.ones(4, 4), torch.full((4, 4), float("inf"))

    with pytest.warns(UserWarning, match="L008"):
        fit(ported, [(good, good[:, :1]), (bad, bad[:, :1]), (good, good[:, :1])], epochs=1)

    assert "loss=nan since call 2" in terminal.readouterr().err
