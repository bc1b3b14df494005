"""Curves for plots: the losses and rates of each step, gaps where none is known, and the band of all runs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import porting
from porting import PortOptions
from porting.verify import Verdict
from porting.verify.certificate import Sensitivity
from porting.verify.judgement import Judgement, judge_runs
from porting.verify.noise_band import NoiseBand
from porting.verify.records import Record
from porting.verify.runs import SIZES, Runs, find_smallest_fault, plant_fault


def record(*losses, rates=None):
    steps = enumerate(losses, 1)
    return Record({step: list(each) for step, each in steps}, dict(enumerate(rates or [], 1)))


def make_curves(plain, ported, reference, runs):
    return Runs(1e-7, plain, ported, runs, reference).make_curves()


def test_a_curve_has_the_mean_loss_of_each_step():
    curves = make_curves(record([1.0, 3.0], [1.0]), record([2.0], [1.5]), None, [])

    assert curves.plain == (2.0, 1.0)
    assert curves.ported == (2.0, 1.5)
    assert curves.reference == ()


def test_a_step_without_a_loss_is_a_gap():
    curves = make_curves(record([1.0], [1.0]), record([], [1.0]), None, [])

    assert math.isnan(curves.ported[0])
    assert curves.ported[1] == 1.0


def test_the_band_bounds_all_runs():
    runs = [record([0.5], [4.0]), record([2.0])]

    curves = make_curves(record([1.0], [3.0]), record([1.0]), record([1.0]), runs)

    assert curves.lowest == (0.5, 3.0)
    assert curves.highest == (2.0, 4.0)
    assert curves.reference == (1.0,)


def test_rates_are_those_of_the_first_group():
    curves = make_curves(record([1.0], [1.0], rates=[[0.1, 7.0], [0.05]]), record(), None, [])

    assert curves.plain_rates == (0.1, 0.05)
    assert curves.ported_rates == ()


# -- the smallest fault ------------------------------------------------------------------------------------------------

SINGLE = torch.finfo(torch.float32).eps


def make_record(*, noise=0.0, seed=0, gradients=True):
    """Make the record of two steps of gradient descent, whose gradients are rounded at random."""
    exact, draws = torch.Generator().manual_seed(1), torch.Generator().manual_seed(seed)
    made, weight = Record({1: [2.0], 2: [1.5]}), torch.ones(300, dtype=torch.float64)
    made.keep("parameter", 0, {"weight": weight})
    for step in (1, 2):
        gradient = torch.randn(300, generator=exact) * (1 + noise * torch.randn(300, generator=draws))
        weight = weight - gradient
        if gradients:
            made.keep("gradient", step, {"weight": gradient})
        made.keep("parameter", step, {"weight": weight})
    return made


def find(noise, *, gradients=True):
    band = NoiseBand(*make_runs(noise, gradients=gradients), SINGLE)
    return find_smallest_fault(judge_runs(band.plain, band.plain, band), band), band


def make_runs(noise, **given):
    return make_record(**given), [make_record(noise=noise, seed=seed, **given) for seed in (1, 2)]


def test_the_smallest_fault_is_as_large_as_the_band():
    small, large = (find(noise)[0] for noise in (1e-6, 1e-3))

    assert (small.kind, large.kind) == ("gradient", "gradient")
    assert small.missed < small.caught < large.missed < large.caught


def test_what_is_caught_is_far_outside_and_what_is_missed_is_not():
    found, band = find(1e-4)

    caught, missed = (
        max(
            one.factor
            for one in judge_runs(band.plain, plant_fault(band.plain, "gradient", size), band).measured["gradient"]
        )
        for size in (found.caught, found.missed)
    )
    assert missed <= 3.0 < caught


def test_without_gradients_the_fault_is_one_of_the_updates():
    found, _band = find(1e-4, gradients=False)

    assert found.kind == "update"
    assert found.caught == pytest.approx(find(1e-4)[0].caught, rel=3)


def test_updates_grow_from_the_start_on():
    record = make_record()

    planted = plant_fault(record, "update", 0.5)

    start, end = (record.sketches["parameter", step]["weight"].values for step in (0, 2))
    torch.testing.assert_close(planted.sketches["parameter", 2]["weight"].values, start + 1.5 * (end - start))
    assert torch.equal(planted.sketches["parameter", 0]["weight"].values, start)


def test_where_all_is_noise_nothing_is_caught():
    found, _band = find(10.0)

    assert (found.caught, found.missed) == (None, SIZES[-1])
    assert str(found) == "no fault that was planted in the gradients would have been caught"


def test_the_smallest_size_is_the_least_that_is_told():
    band = NoiseBand(*make_runs(0.0), 1e-12)

    found = find_smallest_fault(judge_runs(band.plain, band.plain, band), band)

    assert (found.caught, found.missed) == (SIZES[0], None)
    assert str(found) == "gradients that are 0.0001 % too large would have been caught"


def test_a_proof_that_compared_neither_says_nothing():
    _found, band = find(1e-4)

    assert find_smallest_fault(Judgement(), band) is None
    assert find_smallest_fault(Judgement({"gradient": [None]}), NoiseBand(band.plain, [], SINGLE)) is None


X, Y = torch.randn(16, 12, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 4


def certify(precision, *, excess=0.0, keeps=True):
    """Prove a port whose gradients are too large by `excess`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4))

    def loss(outputs, labels):
        value = F.cross_entropy(outputs, labels)
        return value + excess * (value - value.detach())

    def optimizer(model):
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def port(model):
        options = PortOptions(precision=precision, keep_gradients=keeps, output_mode="all", engine="replay")
        return porting.to_ipu(model, loss, optimizer=optimizer(model), options=options, device="sim")

    return porting.verify(model, F.cross_entropy, (X, Y), optimizer=optimizer, ported=port, steps=4)


@pytest.mark.sampled(1)
@pytest.mark.filterwarnings("ignore::porting.PortingWarning")
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("precision", ["float32", "mixed", "float16"])
def test_a_port_with_the_fault_that_is_told_fails_and_a_sound_one_passes(precision, keeps):
    certificate = certify(precision, keeps=keeps)

    faulty = certify(precision, excess=3 * certificate.sensitivity.caught, keeps=keeps)

    assert certificate.verdict is Verdict.PASS, str(certificate)
    assert certificate.sensitivity.kind == ("gradient" if keeps else "update")
    assert certificate.sensitivity.caught <= 0.1
    assert faulty.verdict is Verdict.FAIL, str(faulty)


def test_the_sentence_comes_first():
    certificate = certify("float32")

    assert str(certificate).startswith(f"{certificate.sensitivity}\nPASS: ")
    assert next(iter(certificate.to_dict())) == "sensitivity"
    assert Sensitivity(**certificate.to_dict()["sensitivity"]) == certificate.sensitivity
