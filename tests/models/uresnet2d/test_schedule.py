"""The learning rate of each step, and what a scheduler makes of it."""

from __future__ import annotations

import pickle

import pytest
import torch

from porting.models.uresnet2d import Schedule


@pytest.mark.parametrize(
    ("epoch", "rate"),
    [
        (0, 1e-5),
        (0.5, 1.55e-4),
        (1, 3e-4),
        (10, 3e-4),
        (20, 3e-4),
        (21, 3e-4),
        (22, 1.736493e-4),
        (26, 1.013543e-4),
        (100, 1e-4),
    ],
)
def test_the_rate_rises_stays_and_falls_to_its_floor(epoch, rate):
    assert Schedule(steps_per_epoch=10)(int(10 * epoch)) == pytest.approx(rate, rel=1e-5)


def test_the_rate_has_no_jumps():
    schedule = Schedule(steps_per_epoch=50)
    rates = [schedule(step) for step in range(30 * 50)]

    assert max(abs(after - before) for before, after in zip(rates, rates[1:])) < 6e-6


def test_a_scheduler_of_an_optimizer_with_rate_one_gives_the_rate_itself():
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = Schedule(steps_per_epoch=4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule)
    rates = []

    for _ in range(8):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()

    assert rates == [schedule(step) for step in range(8)]


def test_a_schedule_can_be_stored_and_sent():
    schedule = Schedule(steps_per_epoch=4, peak_rate=1e-3)

    assert pickle.loads(pickle.dumps(schedule)) == schedule


def test_an_epoch_without_steps_is_refused():
    with pytest.raises(ValueError, match="`steps_per_epoch` is 0"):
        Schedule(steps_per_epoch=0)
