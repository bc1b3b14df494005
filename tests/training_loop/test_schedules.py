"""Schedulers are stepped by epoch or by optimizer step, and wrong settings are refused before the training."""

from __future__ import annotations

import pytest
import torch

from porting import fit
from porting.diagnostics import OptionError, UnsupportedOptimizerError
from tests.training_loop.small_training import make_loader, make_model, make_optimizer, make_port


def make_scheduler(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


def test_a_scheduler_is_stepped_behind_each_epoch():
    ported, optimizer = make_port(lr=1.0)

    fit(ported, make_loader(), 3, progress=False, schedulers=[make_scheduler(optimizer)])

    assert optimizer.param_groups[0]["lr"] == 0.125
    assert ported.optimizer.param_groups[0]["lr"] == 0.125


def test_one_that_is_connected_already_may_be_given():
    ported, optimizer = make_port(lr=1.0)

    fit(ported, make_loader(), 2, progress=False, schedulers=[ported.scheduler(make_scheduler(optimizer))])

    assert optimizer.param_groups[0]["lr"] == 0.25


def test_a_call_of_several_steps_steps_it_as_often():
    ported, optimizer = make_port(lr=1.0, micro_batch=3, device_iterations=2)
    schedule = {"scheduler": make_scheduler(optimizer), "interval": "step"}

    fit(ported, make_loader(12), 1, progress=False, schedulers=[schedule])

    assert optimizer.param_groups[0]["lr"] == 0.5**4


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_a_resumed_training_has_the_same_losses(interval, tmp_path):
    def train(folder, *, stop_behind=None):
        def stop(_returned):
            if ported.port_optimizer.num_steps == stop_behind:
                raise KeyboardInterrupt

        ported, optimizer = make_port()
        settings = {"progress": False, "checkpoint": folder, "every": 1, "after_call": stop}
        schedule = {"scheduler": make_scheduler(optimizer), "interval": interval}
        return fit(ported, make_loader(), 3, schedulers=[schedule], **settings)

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "broken", stop_behind=6)

    assert train(tmp_path / "broken") == train(tmp_path / "whole")


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"intervall": "step"}, "did you mean `interval`"),
        ({"interval": "batch"}, "the interval 'batch'"),
        ({"frequency": 0}, "the frequency 0"),
        ({"monitor": "val_los"}, "monitors 'val_los'"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(settings, fault):
    ported, optimizer = make_port()

    with pytest.raises(OptionError, match=fault):
        fit(ported, make_loader(), 1, progress=False, schedulers=[{"scheduler": make_scheduler(optimizer), **settings}])


def test_a_plateau_is_not_looked_for_behind_steps():
    ported, optimizer = make_port()
    schedule = {"scheduler": torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer), "interval": "step"}

    with pytest.raises(OptionError, match="plateau"):
        fit(ported, make_loader(), 1, progress=False, schedulers=[schedule])


def test_a_scheduler_of_another_optimizer_is_refused():
    with pytest.raises(UnsupportedOptimizerError, match="O006"):
        fit(make_port()[0], make_loader(), 1, schedulers=[make_scheduler(make_optimizer(make_model()))])
