"""Several losses as terms; that a model is trained on their sum is in test_loss.py."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.loss_terms import LossTerm, compute_terms, make_terms, name_function
from porting.diagnostics import OptionError, PortingError

OUTPUT = {"a": torch.ones(2), "b": torch.zeros(2)}
LABELS = {"a": torch.zeros(2), "b": torch.full((2,), 3.0)}


def values(terms, output=OUTPUT, labels=LABELS, *, label=-1, reduction=None):
    found = compute_terms(make_terms(terms), output, labels, label=label, reduction=reduction)
    return {name: value.item() for name, value in found.items()}


def test_one_loss_gets_everything():
    assert values(F.mse_loss, torch.ones(2), torch.zeros(2)) == {"loss": 1.0}


def test_losses_by_name_find_their_outputs_and_labels():
    assert values({"a": F.mse_loss, "b": F.l1_loss}) == {"a": 1.0, "b": 3.0}


def test_a_term_may_cross_names():
    assert values({"x": LossTerm(F.l1_loss, output="a", label="b", weight=10.0)}) == {"x": 20.0}


def test_a_term_without_keys_gets_everything():
    terms = {"both": LossTerm(lambda output, labels: output["a"].sum() + labels["b"].sum())}

    assert values(terms) == {"both": 8.0}


def test_positions_count_from_either_end():
    terms = {"first": LossTerm(F.l1_loss, output=0, label=-1)}

    assert values(terms, tuple(OUTPUT.values()), tuple(LABELS.values())) == {"first": 2.0}


def test_labels_of_a_call_are_known_by_the_names_they_were_passed_with():
    assert values({"a": F.l1_loss}, labels=tuple(LABELS.values()), label=("a", "b")) == {"a": 1.0}


def test_the_reduction_is_of_each_term():
    terms = {"a": nn.L1Loss(reduction="none"), "b": nn.L1Loss(reduction="none")}

    assert values(terms, reduction="sum") == {"a": 2.0, "b": 6.0}


def test_a_term_that_is_no_scalar_is_named():
    with pytest.raises(PortingError, match=r"the loss `L1Loss` gives a loss of shape \[2\]"):
        values({"a": nn.L1Loss(reduction="none")})


def test_a_name_that_the_model_does_not_return_is_told_with_those_it_does():
    with pytest.raises(PortingError) as caught:
        values({"c": F.mse_loss})

    assert caught.value.code == "L007"
    assert caught.value.finding.notes == ("the model returns a mapping with the keys 'a', 'b'",)


def test_a_label_that_the_call_does_not_have_is_told_with_those_it_has():
    with pytest.raises(PortingError) as caught:
        values({"a": F.mse_loss}, labels=(LABELS["a"],))

    assert caught.value.code == "L006"
    assert caught.value.finding.notes == ("the labels are 1 values",)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.MSELoss, "`loss` is the class MSELoss"),
        (3, "`loss` is 3"),
        ({}, "`loss` is an empty mapping"),
        ({"a": nn.MSELoss}, "`loss['a']` is the class MSELoss"),
        ({"a": LossTerm(None)}, "`loss['a']` is None"),
    ],
)
def test_what_cannot_be_called_is_refused(loss, message):
    with pytest.raises(OptionError) as caught:
        make_terms(loss)

    assert caught.value.finding.message == message


def test_functions_have_their_authors_names():
    assert name_function(nn.MSELoss()) == "`MSELoss`"
    assert name_function(F.mse_loss) == "`mse_loss`"
    assert name_function(functools.partial(F.mse_loss, reduction="sum")) == "`partial`"
