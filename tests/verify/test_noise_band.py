"""Bands follow the measured noise; what rounding leads anywhere is chaos; steps that are kept end with a call."""

from __future__ import annotations

import pytest
import torch

from porting.verify.noise_band import NoiseBand
from porting.verify.records import Record, list_kept_steps

SINGLE = torch.finfo(torch.float32).eps


def record(losses, gradient=None):
    made = Record({step: [loss] for step, loss in enumerate(losses, 1)})
    if gradient is not None:
        made.keep("gradient", 1, {"weight": gradient})
    return made


def test_a_band_is_wider_than_the_furthest_run():
    gradient = torch.ones(400)
    runs = [record([1.0], gradient + noise) for noise in (1e-4, 1e-3)]

    band = NoiseBand(record([1.0], gradient), runs, SINGLE).find_band("gradient", 1, "weight")

    furthest = float((runs[1].sketches["gradient", 1]["weight"].values - 1).norm())
    assert 2 * furthest < band < 10 * furthest


def test_without_noise_some_units_in_the_last_place_are_allowed():
    plain = record([1.0], torch.ones(400))

    band = NoiseBand(plain, [plain], SINGLE).find_band("gradient", 1, "weight")

    assert SINGLE * 20 < band < SINGLE * 20 * 100


def test_a_loss_that_rounding_moves_as_far_as_training_is_chaos():
    plain = record([2.0, 1.5, 1.2, 1.4])

    assert NoiseBand(plain, [record([2.0, 1.5, 1.2, 1.9])], SINGLE).find_chaos() == 4
    assert NoiseBand(plain, [record([2.0, 1.5, 1.2, 1.4001])], SINGLE).find_chaos() is None


@pytest.mark.parametrize("steps_per_call", [1, 3, 4])
def test_kept_steps_end_a_call(steps_per_call):
    kept, _with_gradients = list_kept_steps(24, steps_per_call=steps_per_call)

    assert max(kept) == 24
    assert all(step % steps_per_call == 0 for step in kept)
