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


HALF = torch.finfo(torch.float16).eps
NAMES = "abcdef"


def train_in_half(*, seed, factor=1.0, spread=1.0, only=NAMES):
    """Return the record of a run whose gradients are rounded at random, and in `only` some are off by `factor`."""
    draws, exact = (torch.Generator().manual_seed(number) for number in (seed, 0))
    made = Record({step: [1.0] for step in (1, 2, 3)})
    made.keep("parameter", 0, {name: torch.zeros(200) for name in NAMES})
    for step in (1, 2, 3):
        gradients = {name: torch.randn(200, generator=exact) for name in NAMES}
        for name, gradient in gradients.items():
            noise = 1 + spread * HALF * torch.randn(200, generator=draws)
            gradient.mul_(noise * (factor if name in only else 1.0))
        made.keep("gradient", step, gradients)
        made.keep("parameter", step, {name: -step * gradient for name, gradient in gradients.items()})
    return made


def collect_factors(ported, kind="gradient", **settings):
    runs = [train_in_half(seed=seed) for seed in range(2, 6)]
    return NoiseBand(train_in_half(seed=1), runs, HALF, **settings).collect_factors(ported, kind)


def test_a_port_that_is_rounded_as_the_runs_are_has_no_factor():
    factors = collect_factors(train_in_half(seed=9))

    assert len(factors) == 18
    assert max(factors.values()) < 0.5


@pytest.mark.parametrize("kind", ["gradient", "update"])
def test_all_numbers_that_are_off_to_one_side_are_outside(kind):
    factors = collect_factors(train_in_half(seed=9, factor=1.01), kind)

    assert min(factors.values()) > 1.0


def test_one_tensor_that_is_off_is_named():
    factors = collect_factors(train_in_half(seed=9, factor=1.02, only="c"))

    assert {name for (_step, name), factor in factors.items() if factor > 1.0} == {"c"}


def test_errors_that_are_larger_in_most_tensors_are_outside_though_they_have_no_sign():
    assert max(collect_factors(train_in_half(seed=9, spread=2.0)).values()) < 1.0
    assert max(collect_factors(train_in_half(seed=9, spread=8.0)).values()) > 1.0


def test_single_precision_needs_no_find_factors():
    plain = train_in_half(seed=1)

    assert NoiseBand(plain, [plain], SINGLE).collect_factors(plain, "gradient") == {}


def test_what_a_port_has_not_kept_has_no_factor():
    assert collect_factors(Record({1: [1.0]})) == {}


@pytest.mark.parametrize(("stores_half", "narrowest"), [(True, HALF), (False, 8 * SINGLE)])
def test_weights_that_are_kept_in_single_precision_are_rounded_as_such(stores_half, narrowest):
    plain = train_in_half(seed=1)

    band = NoiseBand(plain, [plain], HALF, stores_half=stores_half).find_band("parameter", 1, "a")

    assert band == pytest.approx(narrowest * plain.sketches["parameter", 1]["a"].norm)


def test_updates_are_the_differences_of_parameters():
    plain = train_in_half(seed=1)

    moved = plain.find("update", 2)["a"]

    wanted = plain.sketches["parameter", 2]["a"].values - plain.sketches["parameter", 1]["a"].values
    assert torch.equal(moved.values, wanted)
    assert plain.find("update", 2)["a"] is moved


def test_a_tensor_that_runs_happen_to_agree_on_has_the_noise_of_the_others():
    plain, run = Record({1: [1.0]}), Record({1: [1.0]})
    tensors = {name: torch.ones(400) for name in "abc"}
    plain.keep("gradient", 1, tensors)
    run.keep("gradient", 1, {**tensors, "a": 1.001 * tensors["a"], "b": 1.001 * tensors["b"]})
    band = NoiseBand(plain, [run], SINGLE)

    bands = [band.find_band("gradient", 1, name) for name in "abc"]

    assert bands == pytest.approx([bands[0]] * 3, rel=1e-3)


def test_a_tensor_that_is_nothing_beside_the_others_is_rounded_as_they_are():
    plain = Record({1: [1.0]})
    plain.keep("gradient", 1, {"large": torch.ones(100), "nothing": 1e-12 * torch.ones(100)})

    band = NoiseBand(plain, [plain], SINGLE).find_band("gradient", 1, "nothing")

    assert band == pytest.approx(1e-6)


def test_an_update_is_rounded_as_its_weights_are():
    plain = Record({1: [1.0]})
    for step in (0, 1):
        plain.keep("parameter", step, {"weight": torch.full((100,), 1.0 + 1e-6 * step)})

    band = NoiseBand(plain, [plain], SINGLE).find_band("update", 1, "weight")

    assert band == pytest.approx(8 * SINGLE * 10.0, rel=1e-3)


def test_later_steps_may_be_twice_as_far():
    plain = record([1.0] * 8)
    run = record([1.01] * 8)
    band = NoiseBand(plain, [run], SINGLE)

    assert band.find_loss_band(8) == pytest.approx(2 * band.find_loss_band(3))


def test_a_loss_that_rounding_has_moved_once_may_be_as_far_later():
    band = NoiseBand(record([1.0, 1.0, 1.0]), [record([1.0, 1.1, 1.0]), record([1.0])], SINGLE)

    assert [band.measure_loss(step) for step in (1, 2, 3)] == pytest.approx([0.0, 0.1, 0.1])


def test_in_half_precision_a_weight_without_a_sign_may_go_to_the_other_side():
    plain, runs = (train_in_half(seed=1), [train_in_half(seed=seed, spread=300.0) for seed in (2, 3)])
    moved = plain.find("update", 2)["a"].norm

    assert NoiseBand(plain, runs, HALF).find_band("update", 2, "a") >= 2 * moved
