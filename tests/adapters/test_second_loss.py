"""A model that returns two losses says which one trains."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import to_ipu
from porting.adapters.second_loss import refuse_second_loss
from porting.diagnostics import CaptureError, PortingError

Losses = namedtuple("Losses", ["loss", "penalty"])


class Returning(nn.Module):
    """A model that returns what `choose` makes of its two losses, written by hand."""

    def __init__(self, choose):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.choose = choose

    def forward(self, x, y):
        difference = self.linear(x) - y
        return self.choose((difference**2).mean(), difference.abs().mean())


def train(choose, **arguments):
    torch.manual_seed(0)
    ported = to_ipu(Returning(choose), device="sim", **arguments)
    return ported(torch.ones(6, 4), torch.ones(6, 1))


@pytest.mark.parametrize(
    "choose",
    [
        lambda squared, absolute: (squared, absolute),
        lambda squared, absolute: [squared, absolute],
        lambda squared, absolute: (squared + absolute, absolute),
        lambda squared, absolute: ("text", squared.reshape(1), absolute),
    ],
    ids=["tuple", "list", "sum first", "one element"],
)
def test_two_losses_written_by_hand_are_refused(choose):
    with pytest.raises(PortingError) as raised:
        train(choose)

    assert raised.value.code == "L005"
    assert "loss_output" in raised.value.finding.help[0]


def test_the_error_shows_the_line_of_the_other_loss():
    with pytest.raises(PortingError) as raised:
        train(lambda squared, absolute: (squared, absolute))

    assert raised.value.finding.place.file == __file__
    assert raised.value.finding.label == "this is value 0"


@pytest.mark.parametrize(
    "choose",
    [
        lambda squared, absolute: (squared, absolute, squared + absolute),
        lambda squared, absolute: (squared.detach(), absolute),
        lambda squared, absolute: ((squared > 1).float().mean(), absolute),
        lambda squared, absolute: Losses(squared, absolute),
        lambda squared, absolute: {"loss": squared, "penalty": absolute},
        lambda squared, absolute: (squared.expand(6), absolute),
        lambda squared, absolute: (squared, poptorch.identity_loss(absolute, reduction="none")),
    ],
    ids=["sum last", "detached", "accuracy", "named field", "named key", "per sample", "marked"],
)
def test_a_loss_that_was_chosen_trains(choose):
    train(choose)


def test_a_loss_that_is_pointed_at_trains():
    squared, _absolute = train(lambda squared, absolute: (squared, absolute), loss_output=0)

    assert squared > 0


def test_two_losses_of_plain_pytorch_are_told_by_their_history():
    weight = torch.ones(3, requires_grad=True)
    one, other = weight.sum(), weight.prod()

    total = one + other
    refuse_second_loss((one, other, total), total)
    with pytest.raises(CaptureError):
        refuse_second_loss((one, other), other)
