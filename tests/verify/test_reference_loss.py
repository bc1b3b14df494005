"""The reference computes the loss as a loop in plain PyTorch does, with the user's own loss object."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import PlainTraining
from porting.adapters import LossTerm
from porting.verify.port_reading import read_as_port
from porting.verify.reference_loss import find_reading, make_loss_function

X, Y = torch.randn(6, 4), torch.randint(3, (6,))


def training(model, loss, **settings):
    return PlainTraining(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), **settings)


class Two(nn.Linear):
    """A model of two inputs."""

    def forward(self, x, shift):
        return super().forward(x) + shift


@dataclass
class Result:
    """What a model returns with its loss."""

    loss: torch.Tensor
    output: torch.Tensor


class Own(nn.Linear):
    """A model that returns its loss in some form."""

    def __init__(self, form):
        super().__init__(4, 3)
        self.form = form

    def forward(self, x, y):
        output = super().forward(x)
        return self.form(F.cross_entropy(output, y), output)


@pytest.mark.parametrize("label", [-1, 1, "target"])
def test_the_target_is_the_argument_that_the_label_names(label):
    model, loss = nn.Linear(4, 3), nn.CrossEntropyLoss()
    args, kwargs = ((X,), {"target": Y}) if label == "target" else ((X, Y), {})

    assert torch.equal(make_loss_function(training(model, loss, label=label))(*args, **kwargs), loss(model(X), Y))


def test_a_target_among_the_inputs_may_come_first_or_by_a_name_that_the_model_does_not_know():
    model, loss, shift = Two(4, 3), nn.CrossEntropyLoss(), torch.ones(3)
    expected = loss(model(X, shift), Y)

    assert torch.equal(make_loss_function(training(model, loss, label=0))(Y, X, shift), expected)
    assert torch.equal(make_loss_function(training(model, loss))(x=X, shift=shift, y=Y), expected)


def test_several_targets_are_a_tuple_and_may_be_changed_first():
    model, other = nn.Linear(4, 3), torch.rand(6)

    def loss(output, targets):
        return (F.cross_entropy(output, targets[0], reduction="none") * targets[1]).mean()

    found = make_loss_function(training(model, loss, label=(1, 2), label_transform=lambda both: (both[0], 2 * both[1])))

    torch.testing.assert_close(found(X, Y, other), loss(model(X), (Y, 2 * other)))


def test_a_batch_without_the_target_is_refused():
    with pytest.raises(ValueError, match="no argument 'z' to be the target"):
        make_loss_function(training(nn.Linear(4, 3), nn.CrossEntropyLoss(), label="z"))(X, Y)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_elements_of_a_loss_are_reduced_as_asked(reduction):
    model = nn.Linear(4, 3)
    whole = F.cross_entropy(model(X), Y, reduction=reduction)

    found = make_loss_function(training(model, nn.CrossEntropyLoss(reduction="none"), reduction=reduction))(X, Y)

    torch.testing.assert_close(found, whole)


@pytest.mark.parametrize(
    ("form", "where"),
    [
        (lambda loss, output: loss, None),
        (lambda loss, output: (output, loss), None),
        (lambda loss, output: (loss, output), 0),
        (lambda loss, output: {"output": output, "loss": loss}, None),
        (lambda loss, output: {"output": output, "mine": loss}, "mine"),
        (lambda loss, output: Result(loss, output), None),
        (lambda loss, output: SimpleNamespace(loss=loss, logits=output), None),
    ],
    ids=["bare", "last", "first", "key", "other key", "dataclass", "attribute"],
)
def test_a_models_own_loss_is_found_where_plain_pytorch_has_it(form, where):
    model = Own(form)

    found = make_loss_function(training(model, None, loss_output=where))(X, Y)

    assert torch.equal(found, F.cross_entropy(F.linear(X, model.weight, model.bias), Y))


def test_ones_own_function_decides_everything():
    own = training(nn.Linear(4, 3), {"a": nn.MSELoss()}, compute_loss=lambda model, x, y: model(x).sum())

    assert find_reading(own) == ""
    assert torch.equal(make_loss_function(own)(X, Y), own.model(X).sum())


def test_how_several_losses_are_added_up_is_the_ports_reading():
    losses = {"a": LossTerm(nn.CrossEntropyLoss()), "b": LossTerm(F.cross_entropy, weight=0.5)}
    own = training(nn.Linear(4, 3), losses)

    assert find_reading(own) == "how several losses are added up"
    torch.testing.assert_close(make_loss_function(read_as_port(own))(X, Y), 1.5 * F.cross_entropy(own.model(X), Y))
