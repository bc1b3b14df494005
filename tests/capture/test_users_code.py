"""A `forward` of torch's own layers alone runs no line of the user's; anything else may."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as module_hooks
from torch.nn.utils import parametrize

from porting.capture.users_code import may_run_users_code


class Own(nn.Linear):
    """A layer whose `forward` is the user's."""

    def forward(self, x):
        return super().forward(x)


class Doubled(nn.Module):
    """A parametrization of the user's."""

    def forward(self, weight):
        return 2 * weight


def with_hook():
    layer = nn.Linear(4, 3)
    layer.register_forward_pre_hook(lambda _module, _args: None)
    return layer


def with_own_forward():
    layer = nn.Linear(4, 3)
    layer.forward = lambda x: x
    return layer


def with_parametrization():
    return parametrize.register_parametrization(nn.Linear(4, 3), "weight", Doubled())


PLAIN = [
    nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout()),
    nn.LSTM(4, 3),
    nn.TransformerEncoderLayer(4, 2),
]


@pytest.mark.parametrize("model", PLAIN, ids=lambda model: type(model).__name__)
def test_layers_of_torch_run_none(model):
    assert not may_run_users_code(model.modules(), [nn.CrossEntropyLoss(), F.mse_loss, torch.relu])
    assert not may_run_users_code(model.modules(), [functools.partial(F.cross_entropy, label_smoothing=0.1)])


@pytest.mark.parametrize(
    "model",
    [
        Own(4, 3),
        with_hook(),
        with_own_forward(),
        with_parametrization(),
        nn.TransformerEncoderLayer(4, 2, activation=lambda x: x.relu()),
        nn.Sequential(nn.ReLU(), Own(4, 3)),
    ],
    ids=["own class", "hook", "own forward", "parametrization", "activation", "inner"],
)
def test_what_is_the_users_may(model):
    assert may_run_users_code(model.modules(), [])


@pytest.mark.parametrize(
    "function",
    [
        lambda output, label: output.sum(),
        Own(4, 3),
        functools.partial(F.triplet_margin_with_distance_loss, distance_function=lambda one, other: one),
    ],
    ids=["lambda", "module", "partial"],
)
def test_a_loss_of_the_users_may(function):
    assert may_run_users_code(nn.Linear(4, 3).modules(), [function])


def test_hooks_of_all_modules_may():
    handle = module_hooks.register_module_forward_hook(lambda _module, _args, _output: None)
    try:
        assert may_run_users_code(nn.Linear(4, 3).modules(), [])
    finally:
        handle.remove()


def test_a_class_of_torch_with_another_forward_may(monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)

    assert may_run_users_code(nn.Linear(4, 3).modules(), [])
