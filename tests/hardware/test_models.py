"""Models of many kinds on the hardware path: tied, frozen, shared, lazy, recurrent, with attention and convolutions."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import nn

from tests.hardware.side_by_side import batches, equal, one_batch, port, sgd, small_net, train_plainly, train_ported


class Tied(nn.Module):
    """Has one weight under two names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens):
        return self.out(self.embedding(tokens))


def test_tied_weights_train_like_plain_and_stay_tied():
    model, twin = Tied(), Tied()
    data = [(torch.randint(5, (8,)), torch.randint(5, (8,)))] * 3

    losses = train_ported(port(model, nn.CrossEntropyLoss(), optimizer=sgd(model)), data)

    assert losses == equal(train_plainly(twin, sgd(twin), data))
    assert model.embedding.weight is model.out.weight


def test_a_frozen_layer_stays():
    model = small_net()
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)

    port(model, nn.CrossEntropyLoss(), optimizer=optimizer)(*one_batch())

    assert torch.equal(model[0].weight, small_net()[0].weight)
    assert not torch.equal(model[2].weight, small_net()[2].weight)


def test_two_ports_share_modules_as_a_gan_does():
    generator, critic = nn.Linear(2, 4), nn.Linear(4, 1)
    of_critic = port(critic, nn.BCEWithLogitsLoss(), optimizer=sgd(critic))
    of_both = port(nn.Sequential(generator, critic), nn.BCEWithLogitsLoss(), optimizer=sgd(generator))

    for _step in range(3):
        before = [module.weight.detach().clone() for module in (generator, critic)]
        of_critic(torch.randn(8, 4), torch.ones(8, 1))
        of_both(torch.randn(8, 2), torch.ones(8, 1))
        after = [module.weight.detach() for module in (generator, critic)]
        assert [torch.equal(one, other) for one, other in zip(before, after)] == [False, False]


Output = namedtuple("Output", ["logits", "hidden"])


class Lazy(nn.Module):
    """Learns the number of its features from the first batch, and returns a named tuple."""

    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(3)

    def forward(self, x):
        hidden = self.layer(x)
        return Output(hidden, hidden.detach())


# torch warns of every lazy module
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")
def test_a_lazy_module_gets_its_shape_and_a_named_tuple_comes_back():
    model = Lazy()

    output, loss = port(model, lambda output, label: nn.functional.cross_entropy(output.logits, label))(*one_batch())

    assert isinstance(output, Output)
    assert model.layer.weight.shape == (3, 4)
    assert torch.isfinite(loss)


class Sequences(nn.Module):
    """Has an embedding, a normalization, an LSTM and attention."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.norm = nn.Embedding(7, 8), nn.LayerNorm(8)
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 3)

    def forward(self, tokens):
        hidden, _state = self.recurrent(self.norm(self.embedding(tokens)))
        hidden, _weights = self.attention(hidden, hidden, hidden)
        return self.out(hidden[:, -1])


def image_net():
    """Make a classifier of images of 8 x 8 pixels."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("make", "draw"),
    [(Sequences, lambda: torch.randint(7, (8, 5))), (image_net, lambda: torch.randn(8, 1, 8, 8))],
    ids=["LSTM and attention", "convolutions"],
)
def test_an_ordinary_model_trains_like_plain_and_infers(make, draw):
    data = [(draw(), torch.randint(3, (8,))) for _step in range(3)]
    model, twin = make(), make()

    ported = port(model, nn.CrossEntropyLoss(), optimizer=sgd(model))

    assert train_ported(ported, data) == equal(train_plainly(twin, sgd(twin), data))
    assert ported.inference()(data[0][0]).shape == (8, 3)


def test_a_model_in_a_model_trains():
    model = nn.Sequential(small_net(), nn.Linear(3, 3))

    losses = train_ported(port(model, nn.CrossEntropyLoss(), optimizer=sgd(model)), batches(1) * 3)

    assert losses[-1] < losses[0]
