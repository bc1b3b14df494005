"""The port's reading of a loss: what `to_ipu` makes of it, on the plain side, for proofs that may not say PASS."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from porting import LossTerm, PlainTraining
from porting.verify.port_reading import read_as_port

X, Y = torch.linspace(-1, 1, 12).view(4, 3), torch.tensor([0, 1, 2, 0])


def build(**settings):
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    loss = settings.pop("loss", F.cross_entropy)
    return PlainTraining(model, loss, torch.optim.SGD(model.parameters(), lr=0.1), **settings)


def test_one_loss_is_read_as_everybody_reads_it():
    training = build()

    read = read_as_port(training).compute_loss(training.model, X, Y)

    assert torch.equal(read, F.cross_entropy(training.model(X), Y))


def test_several_losses_are_added_up_by_their_weights():
    def size_of(output, _label):
        return output.square().mean()

    training = build(loss={"class": LossTerm(F.cross_entropy), "size": LossTerm(size_of, weight=0.5)})

    read = read_as_port(training).compute_loss(training.model, X, Y)

    output = training.model(X)
    assert torch.allclose(read, F.cross_entropy(output, Y) + 0.5 * output.square().mean())


def test_a_copy_has_a_loss_of_its_own():
    training = build(loss=nn.CrossEntropyLoss(label_smoothing=0.1))
    reading = read_as_port(training).compute_loss

    copied = copy.deepcopy(reading)

    assert copied._training.loss is not training.loss
    assert copied._training.model is training.model
    assert torch.equal(copied(training.model, X, Y), reading(training.model, X, Y))
