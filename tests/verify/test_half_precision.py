"""The verdict on half precision names what overflows, what vanishes, and the loss scaling that fits."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

import porting
import porting.simulator as poptorch
from porting import PlainTraining
from porting.verify.certificate import Curves, KindVerdict, Measured, Verdict
from porting.verify.half_precision import judge_half_precision
from porting.verify.half_rounding import HalfRule

X, Y = torch.rand(16, 4, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 3


def make(*, factor=1.0, gain=1.0):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        model[0].weight.mul_(gain)
    return PlainTraining(
        model,
        lambda output, label: F.cross_entropy(output, label) * factor,
        torch.optim.SGD(model.parameters(), lr=0.1),
    )


def judge(training, rule, **settings):
    return judge_half_precision(training, [((X, Y), {})], rule, **settings)


def test_a_sound_port_is_explained():
    verdict = judge(make(), HalfRule("mixed", 1024.0))

    assert verdict.explains
    assert verdict.precision == "mixed"


def test_gradients_that_vanish_are_a_fault_and_the_scaling_that_fits_is_named():
    training = make(factor=1e-7)

    lost = judge(training, HalfRule("mixed"))
    scaled = judge(training, HalfRule("mixed", lost.loss_scale))

    assert not lost.explains
    assert "float16 loses 100% of the gradients" in lost.text
    assert f"a loss scaling of {lost.loss_scale:,.0f} would fit" in lost.text
    assert scaled.explains
    assert lost.layers["0"]["lost_gradients"] == 1.0 > scaled.layers["0"]["lost_gradients"]


def test_gradients_that_overflow_are_a_fault():
    verdict = judge(make(), HalfRule("float16", 2.0**24))

    assert not verdict.explains
    assert "the gradients at" in verdict.text
    assert "overflow, multiplied by 16,777,216" in verdict.text
    assert verdict.layers["2"]["overflowing_gradients"] > 0.0


def test_values_beyond_the_end_are_named_by_module():
    verdict = judge(make(gain=1e6), HalfRule("mixed"))

    assert not verdict.explains
    assert "the output of `0`, `1`, `2` is beyond the end of float16" in verdict.text


def test_outputs_that_vanish_are_named():
    training = make()
    with torch.no_grad():
        for tensor in (training.model[0].weight, training.model[0].bias):
            tensor.mul_(1e-9)

    assert "many outputs of `0`, `1` are below what float16 can hold" in judge(training, HalfRule("mixed")).text


def test_bfloat16_has_the_range_of_float32():
    assert judge(make(factor=1e-7, gain=1e6), HalfRule("bfloat16")).explains


def test_a_kind_outside_the_band_is_not_explained():
    measured = Measured("gradient", "0.bias", 1, distance=3.0, scale=3.0, band=0.5)
    kind = KindVerdict("gradient", Verdict.FAIL, 4, worst=measured, first=measured)

    verdict = judge(make(), HalfRule("mixed"), kinds=[kind])

    assert not verdict.explains
    assert "gradient of `0.bias` in step 1 is outside of what float16 explains by 6.0 times" in verdict.text


def test_the_curve_is_compared_with_float32():
    curves = Curves(plain=(1.0, 0.9), ported=(1.0, 0.92), reference=(1.0, 0.905))

    verdict = judge(make(), HalfRule("mixed"), curves=curves)

    assert "the losses are up to 0.015 from those in float32" in verdict.text


def test_model_and_optimizer_do_not_change():
    training = make()
    before = copy.deepcopy(training.model.state_dict())

    judge(training, HalfRule("float16"))

    assert all(torch.equal(value, before[name]) for name, value in training.model.state_dict().items())
    assert training.model[0].weight.grad is None
    assert not training.model[0]._forward_hooks


def certify(scaling):
    """Prove a port whose loss is a millionth of a usual one, and whose device multiplies by `scaling`."""
    training = make(factor=1e-6)

    def port(model):
        optimizer = poptorch.optim.SGD(model.parameters(), lr=1e4, loss_scaling=scaling, use_combined_accum=False)
        options = porting.PortOptions(precision="mixed", keep_gradients=True, output_mode="all", engine="replay")
        return porting.to_ipu(model, training.loss, optimizer=optimizer, options=options, device="sim")

    def optimizer(model):
        return torch.optim.SGD(model.parameters(), lr=1e4)

    return porting.verify(training.model, training.loss, [(X, Y)], optimizer=optimizer, ported=port, steps=2)


def test_a_port_without_its_loss_scaling_is_not_certified():
    certificate = certify(1.0)

    assert certificate.verdict is Verdict.FAIL
    assert not certificate.precision.explains
    assert "a loss scaling of" in certificate.reason


def test_a_port_with_a_loss_scaling_that_fits_is_certified():
    certificate = certify(65536.0)

    assert certificate.verdict is Verdict.PASS, certificate.reason
    assert certificate.precision.explains
