"""The loss inside what a model returns, the loss as a scalar, and a second loss: the model says which one trains."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import to_ipu
from porting.adapters.returned_loss import find_loss, make_scalar, refuse_second_loss, replace_loss
from porting.diagnostics import CaptureError, PortingError

Result = namedtuple("Result", ["loss", "logits"])
Pair = namedtuple("Pair", ["logits", "penalty"])


@pytest.mark.parametrize(
    ("returned", "loss_output"),
    [
        (("logits", "the loss"), None),
        (["logits", "the loss"], None),
        (("the loss", "logits"), 0),
        (("a", "the loss", "b"), -2),
        ({"logits": 1, "loss": "the loss"}, None),
        ({"logits": 1, "total": "the loss"}, "total"),
        (Result("the loss", "logits"), None),
        (Pair("logits", "the loss"), None),
        (Pair("logits", "the loss"), "penalty"),
        (Pair("the loss", "penalty"), 0),
    ],
)
def test_the_loss_is_found_and_exchanged(returned, loss_output):
    changed = replace_loss(returned, "another", loss_output)

    assert find_loss(returned, loss_output) == "the loss"
    assert find_loss(changed, loss_output) == "another"
    assert type(changed) is type(returned)
    assert len(changed) == len(returned)


def test_a_bare_tensor_is_the_loss():
    loss, other = torch.tensor(1.0), torch.tensor(2.0)

    assert find_loss(loss) is loss
    assert replace_loss(loss, other) is other


def test_the_models_own_dictionary_is_not_changed():
    returned = OrderedDict(loss=1)

    replace_loss(returned, 2)

    assert returned == {"loss": 1}


@pytest.mark.parametrize(
    ("returned", "loss_output", "code"),
    [
        ({"logits": 1}, None, "L004"),
        ({"logits": 1}, "total", "L004"),
        (None, None, "L004"),
        ((), None, "L004"),
        (Pair(1, 2), "loss", "L004"),
        ((1, 2), "loss", "L004"),
        ((1, 2), 2, "L007"),
        ((1, 2), -3, "L007"),
    ],
)
def test_a_model_without_the_loss_is_an_error(returned, loss_output, code):
    with pytest.raises(PortingError) as caught:
        find_loss(returned, loss_output)

    assert caught.value.code == code
    assert "`loss_output=`" in caught.value.finding.help[0]


@pytest.mark.parametrize(("reduction", "expected"), [("mean", 2.0), ("sum", 6.0)])
def test_a_reduction_makes_a_scalar(reduction, expected):
    loss = make_scalar(torch.tensor([[1.0, 2.0, 3.0]]), name="it", reduction=reduction)

    assert loss.shape == ()
    assert loss.item() == expected


def test_one_element_is_a_scalar_of_any_shape():
    loss = make_scalar(torch.tensor([[3.0]]), name="it", reduction=None)

    assert loss.shape == ()
    assert loss.item() == 3.0


@pytest.mark.parametrize(
    ("value", "code", "message"),
    [
        (torch.ones(4, 2), "L002", "it gives a loss of shape [4, 2]"),
        (torch.ones(0), "L002", "it gives a loss of shape [0]"),
        ((torch.ones(()), torch.ones(())), "L002", "it gives a tuple of 2 values, not a tensor"),
        ("text", "L002", "it gives a str, not a tensor"),
        (1.5, "L003", "it gives a Python float, which has no gradient"),
        (torch.tensor(3), "L003", "it gives a tensor of type torch.int64, which can have no gradient"),
        (None, "L004", "it gives None"),
    ],
)
def test_what_is_no_scalar_loss_is_an_error(value, code, message):
    with pytest.raises(PortingError) as caught:
        make_scalar(value, name="it", reduction=None)

    assert caught.value.code == code
    assert caught.value.finding.message == message
    assert caught.value.finding.help


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
