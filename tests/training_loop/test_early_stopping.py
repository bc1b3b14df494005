"""Early stopping: what it waits for, and that a resumed training stops behind the same epoch."""

from __future__ import annotations

import math

import pytest

from porting import fit
from porting.diagnostics import OptionError
from porting.training_loop import EarlyStopping, FitState
from porting.training_loop.early_stopping import is_better
from tests.training_loop.small_training import make_loader, make_port


def stop_behind(stopping, values):
    """Return the epochs that are made of those that would have these values of `train_loss`."""
    state = FitState(make_port()[0], len(values))
    for state.epoch, value in enumerate(values, 1):
        state.metrics = {"train_loss": value}
        stopping.on_train_epoch_end(state)
        if state.should_stop:
            break
    return state.epoch


@pytest.mark.parametrize(
    ("settings", "values", "epochs"),
    [
        ({"patience": 2}, [3.0, 2.0, 2.0, 2.0, 1.0], 4),
        ({"patience": 1, "min_delta": 0.5}, [3.0, 2.8, 1.0], 2),
        ({"patience": 1, "mode": "max"}, [1.0, 2.0, 1.0, 3.0], 3),
        ({"patience": 3}, [3.0, math.nan, 1.0], 2),
        ({"patience": 3, "check_finite": False}, [3.0, math.nan, 1.0], 3),
    ],
)
def test_it_stops_when_its_patience_is_over(settings, values, epochs):
    stopping = EarlyStopping("train_loss", **{"mode": "min", **settings})

    assert stop_behind(stopping, values) == epochs


def test_a_resumed_training_stops_behind_the_same_epoch(tmp_path):
    def train(epochs, folder):
        settings = {"progress": False, "checkpoint": folder, "validation": make_loader(12, seed=5)}
        stopping = EarlyStopping(patience=3)
        return fit(make_port(0.5)[0], make_loader(), epochs, early_stopping=stopping, **settings), stopping

    whole, expected = train(20, tmp_path / "whole")
    train(len(whole) - 2, tmp_path / "broken")
    resumed, stopping = train(20, tmp_path / "broken")
    again, _stopping = train(20, tmp_path / "broken")

    assert resumed == whole == again
    assert resumed.metrics == whole.metrics
    assert stopping.stopped_epoch == expected.stopped_epoch == len(whole) < 20


def test_more_patience_lets_a_stopped_training_go_on(tmp_path):
    def train(patience):
        settings = {"progress": False, "checkpoint": tmp_path, "validation": make_loader(12, seed=5)}
        return fit(make_port(0.5)[0], make_loader(), 20, early_stopping=EarlyStopping(patience=patience), **settings)

    stopped = train(1)

    assert len(train(3)) > len(stopped)


def test_everything_is_better_than_nothing_but_what_is_no_number():
    assert is_better(5.0, None, mode="min")
    assert not is_better(math.nan, None, mode="min")


def test_an_unknown_mode_is_refused():
    with pytest.raises(OptionError, match="`mode` is 'smallest'"):
        EarlyStopping(mode="smallest")
