"""An optimizer's kind and settings are read alike from torch's classes and from those of any backend."""

from __future__ import annotations

import math

import pytest
import torch

from porting.engines.calls.group_settings import OptimizerKind, find_kind, read_settings


def make_weights():
    return [torch.nn.Parameter(torch.ones(2))]


class Foreign(torch.optim.Optimizer):
    """A LAMB as a backend has it, by what its class and its instances hold."""

    _group_vars = ("lr", "weight_decay", "betas", "eps", "max_weight_norm")

    def __init__(self, *, bias_correction):
        defaults = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.0, "max_weight_norm": 3.0}
        super().__init__(make_weights(), defaults)
        self.bias_correction = bias_correction
        self.loss_scaling = 8


class LAMB(torch.optim.Optimizer):
    """One of somebody else, with arithmetic of its own."""

    def __init__(self):
        super().__init__(make_weights(), {"lr": 0.1})


@pytest.mark.parametrize(
    ("is_corrected", "kind"), [(True, OptimizerKind.LAMB), (False, OptimizerKind.LAMB_NO_BIAS)], ids=str
)
def test_a_backends_own_lamb_is_known_by_its_settings(is_corrected, kind):
    optimizer = Foreign(bias_correction=is_corrected)

    (settings,) = read_settings(optimizer)

    assert find_kind(optimizer) == settings.kind == kind
    assert (settings.max_weight_norm, settings.loss_scaling, settings.beta2) == (3.0, 8.0, 0.99)


def test_another_class_of_that_name_is_not():
    with pytest.raises(AssertionError, match="Unsupported optimizer type"):
        find_kind(LAMB())


def test_what_torchs_optimizers_do_not_have_is_neutral():
    (settings,) = read_settings(torch.optim.SGD(make_weights(), lr=0.5, momentum=0.9))

    assert (settings.kind, settings.learning_rate, settings.momentum) == (OptimizerKind.SGD2, 0.5, 0.9)
    assert (settings.loss_scaling, settings.max_grad_norm, settings.accum_type) == (1.0, math.inf, torch.float32)
