"""A small network, its plain training and its port, with changes that plant a fault in either."""

from __future__ import annotations

import copy

import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.verify.plain_training import PlainTraining


class Net(nn.Module):
    """A small network with most of what a fault can sit in."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 16)
        self.norm = nn.BatchNorm1d(16)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(0.2)
        self.second = nn.Linear(16, 8)
        self.scale = 2.0
        self.register_buffer("mean", torch.zeros(8))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        h = self.drop(self.act(self.norm(self.first(x))))
        h = self.second(h)
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.head(torch.tanh(h) * self.scale)


def change_attribute(path, name, value):
    return lambda model: setattr(model.get_submodule(path), name, value)


def exchange_module(path, module):
    return lambda model: setattr(model, path, module)


def make_sgd(parameters, **settings):
    return torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, **settings})


class Around:
    """A port inside of somebody's own class."""

    def __init__(self, ported):
        self.inner = ported

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    def __call__(self, *args):
        return self.inner(*args)


def make_batches(count=3, rows=8):
    generator = torch.Generator().manual_seed(5)
    return [
        (torch.randn(rows, 6, generator=generator), torch.randint(4, (rows,), generator=generator))
        for _ in range(count)
    ]


def build_pair(change=None, scheduler=None, kind=Net, **options):
    """Return a plain training of a model, and a port of a copy that `change` has changed."""
    torch.manual_seed(0)
    model = kind()
    twin = copy.deepcopy(model)
    optimizer = make_sgd(model.parameters())
    plain = PlainTraining(model, nn.CrossEntropyLoss(), optimizer, scheduler and scheduler(optimizer))
    if change is not None:
        change(twin)
    ported = to_ipu(
        twin,
        nn.CrossEntropyLoss(),
        optimizer=make_sgd(twin.parameters()),
        options=PortOptions(keep_gradients=True, output_mode="all", **options),
        device="sim",
    )
    return plain, ported
