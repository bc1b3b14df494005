"""Settings of optimizers are compared as settings, exactly, whatever they do to a few steps."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import porting
from porting.verify.certificate import Verdict
from porting.verify.optimizer_settings import compare_settings, iter_setting_differences, read_settings

MODEL = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
NAMED = list(MODEL.named_parameters())


def sgd(**changes):
    return read_settings(torch.optim.SGD(MODEL.parameters(), **{"lr": 0.1, **changes}), NAMED)


def adam(kind=torch.optim.Adam, **changes):
    return read_settings(kind(MODEL.parameters(), **{"lr": 0.1, "weight_decay": 0.0, **changes}), NAMED)


@pytest.mark.parametrize(
    ("plain", "ported", "words"),
    [
        (sgd(), sgd(weight_decay=1e-3), "weight_decay: 0.001 in the port, 0 in plain PyTorch"),
        (sgd(momentum=0.9), sgd(momentum=0.9, nesterov=True), "nesterov: True in the port, False in plain PyTorch"),
        (adam(eps=1e-8), adam(eps=1e-4), "eps: 0.0001 in the port, 1e-08 in plain PyTorch"),
        (adam(betas=(0.9, 0.99)), adam(), "betas: (0.9, 0.999) in the port, (0.9, 0.99) in plain PyTorch"),
        (adam(weight_decay=0.1), adam(torch.optim.AdamW, weight_decay=0.1), "class: AdamW in the port, Adam"),
    ],
)
def test_a_setting_that_differs_is_told_with_both_values(plain, ported, words):
    (found,) = compare_settings(plain, ported, 3)

    assert f"{found.name}: {found.note}".startswith(words)
    assert not found.is_inside


def test_settings_that_are_alike_are_one_comparison():
    (found,) = compare_settings(sgd(), sgd(lr=0.1 * (1 + 1e-8)), 1)

    assert (found.name, found.is_inside) == ("all", True)


def test_without_decay_adam_and_adamw_are_one():
    assert not list(iter_setting_differences(adam()["0.weight"], adam(torch.optim.AdamW)["0.weight"]))


def test_what_only_some_parameters_have_is_told_by_their_names():
    groups = [{"params": MODEL[0].parameters()}, {"params": MODEL[1].parameters(), "weight_decay": 0.1}]

    (found,) = compare_settings(sgd(), read_settings(torch.optim.SGD(groups, lr=0.1), NAMED), 1)

    assert found.name == "weight_decay of `1.weight`, `1.bias`"


def test_a_parameter_that_only_one_side_trains_is_told():
    some = read_settings(torch.optim.SGD(MODEL[0].parameters(), lr=0.1), NAMED)

    (found,) = compare_settings(sgd(), some, 1)

    assert (found.name, found.note) == ("parameter of `1.weight`, `1.bias`", "only plain PyTorch trains it")


def test_the_norm_that_gradients_are_clipped_to_is_a_setting():
    clipped = read_settings(torch.optim.SGD(MODEL.parameters(), lr=0.1), NAMED, 1.0)

    assert [found.name for found in compare_settings(clipped, sgd(), 1)] == ["max_grad_norm"]
    assert sgd()["0.weight"]["max_grad_norm"] == math.inf


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:note:porting.diagnostics.delivery.PortingWarning")
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_half_precision_hides_no_setting(precision):
    batch = torch.randn(16, 3), torch.randn(16, 1)

    def port(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
        options = porting.PortOptions(precision=precision, keep_gradients=True)
        return porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, options=options, device="sim")

    plain = torch.optim.AdamW(MODEL.parameters(), lr=3e-3, weight_decay=0.01)
    certificate = porting.verify(MODEL, nn.MSELoss(), batch, optimizer=plain, steps=2, ported=port)

    assert certificate.verdict is Verdict.FAIL
    assert certificate.first.name == "weight_decay"
