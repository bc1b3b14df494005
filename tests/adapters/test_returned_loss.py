"""The loss inside what a model returns, and the loss as a scalar."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import pytest
import torch

from porting.adapters.returned_loss import find_loss, make_scalar, replace_loss
from porting.diagnostics import PortingError

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
