"""Code that may compute something else when it runs again is told from code that cannot."""

from __future__ import annotations

import itertools
import math
import os
import random
import time
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture.settled_code import is_plain
from porting.capture.users_code import may_decide_anew
from porting.models import gpt, resnet

COUNT = 0
SCALE = 2.0
TABLE = {"scale": 1.0}
GENERATOR = random.Random(0)
CONSTANT = torch.ones(4)


def scaled(x):
    return x * SCALE


def counting(x):
    global COUNT
    COUNT += 1
    return x


class Base(nn.Module):
    """Parts and settings that the classes below use."""

    calls_of_class = 0
    history = []  # noqa: RUF012 - what is looked for

    def __init__(self):
        super().__init__()
        self.layer, self.norm, self.drop = nn.Linear(4, 4), nn.LayerNorm(4), nn.Dropout(0.1)
        self.scale, self.sizes, self.seed = 1.5, (4, 4), 3


class Plain(Base):
    def forward(self, x):
        batch, width = x.shape
        parts = [self.layer(part) for part in x.split(2, dim=1)] if width > 4 else [self.layer(x)]
        parts.append(self.norm(x))
        x = torch.cat(parts, dim=-1).view(batch, -1)[:, :width]
        x = x + scaled(x) * self.scale / math.sqrt(width)
        x += sum(F.relu(part).mean() for part in parts)
        with torch.no_grad():
            mask = torch.arange(width, device=x.device) < self.sizes[0]
        return self.drop(x).masked_fill(~mask, float("-inf")) if self.training else x


class Inherited(Plain):
    def forward(self, x):
        return self.twice(super().forward(x))

    def twice(self, x):
        return x * 2


class Counter(Base):
    def forward(self, x):
        self.scale += 1
        return x * self.scale


class Clock(Base):
    def forward(self, x):
        return x * time.perf_counter()


class Drawn(Base):
    def forward(self, x):
        return x * GENERATOR.random()


class DrawnOnHost(Base):
    def forward(self, x):
        return x * torch.rand(1, device="cpu")


class Seeded(Base):
    def forward(self, x):
        return x * torch.seed()


class Identities(Base):
    def forward(self, x):
        return self.drop(torch.eye(4)) @ x


class Global(Base):
    def forward(self, x):
        return counting(x)


class Looked(Base):
    def forward(self, x):
        return x * TABLE["scale"]


class HostTensor(Base):
    def forward(self, x):
        return x * CONSTANT


class Environment(Base):
    def forward(self, x):
        return x * len(os.environ)


class OfClass(Base):
    def forward(self, x):
        self.history.append(1)
        return x


class Imports(Base):
    def forward(self, x):
        from random import random as draw

        return x * draw()


class Held(Base):
    def __init__(self, held):
        super().__init__()
        self.held = held

    def forward(self, x):
        return self.layer(x)


class Helper(Base):
    def forward(self, x):
        return self.layer(x) * self.number

    @property
    def number(self):
        return time.time()


class WithDefault(Base):
    def forward(self, x, seen=[]):  # noqa: B006 - what is looked for
        seen.append(1)
        return x * len(seen)


class OwnConvolution(nn.Conv1d):
    """A layer of torch that calls a method of the user's."""

    def _conv_forward(self, input, weight, bias):
        return super()._conv_forward(input * time.time(), weight, bias)


class OwnCall(Plain):
    def __call__(self, x):
        return super().__call__(x * time.time())


class OwnAttributes(Plain):
    def __getattr__(self, name):
        return super().__getattr__(name)


class SetBack(Base):
    def forward(self, x):
        setattr(self, "scale", self.scale + 1)  # noqa: B010 - what is looked for
        return x


class Grows(Base):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])

    def forward(self, x):
        self.layers.append(nn.ReLU())
        return x


def with_closure():
    count = 0

    class Closed(Base):
        def forward(self, x):
            nonlocal count
            count += 1
            return x * count

    return Closed()


def with_hook():
    model = Plain()
    model.register_forward_pre_hook(lambda _module, _args: None)
    return model


def settled(model, *functions, call=()):
    return not may_decide_anew(model.modules(), functions, call)


@pytest.mark.parametrize("make", [Plain, Inherited], ids=lambda make: make.__name__)
def test_operators_parts_and_settings_are_settled(make):
    assert settled(make(), nn.CrossEntropyLoss(), scaled, call=((torch.ones(2, 4), 1, "mean"), {"flag": True}))


UNSETTLED = [
    Counter,
    Clock,
    Drawn,
    DrawnOnHost,
    Seeded,
    Identities,
    Global,
    Looked,
    HostTensor,
    Environment,
    OfClass,
    Imports,
    Helper,
    WithDefault,
    partial(OwnConvolution, 4, 4, 1),
    OwnCall,
    OwnAttributes,
    SetBack,
    Grows,
    with_closure,
    with_hook,
]


@pytest.mark.parametrize("make", UNSETTLED, ids=lambda make: getattr(make, "__name__", "partial"))
def test_what_may_be_another_thing_next_time_is_not(make):
    model = make()

    assert not settled(model)
    assert not settled(nn.Sequential(nn.Linear(4, 4), model))


@pytest.mark.parametrize(
    "held",
    [[], {}, itertools.count(), random.Random(), torch.ones(1), lambda x: x, (1, [2]), torch.device("cpu"), "cpu"],
    ids=lambda held: type(held).__name__,
)
def test_a_setting_that_may_change_is_not(held):
    assert settled(Held(3.0))
    assert not settled(Held(held))


def test_a_function_beside_the_model_is_looked_into():
    assert not settled(Plain(), counting)
    assert not settled(Plain(), lambda output, label: output * time.time())
    assert not settled(Plain(), Clock())


def test_an_argument_that_may_change_is_not():
    assert not settled(Plain(), call=((random.Random(),), {}))


def test_usual_models_are_settled():
    assert settled(gpt.build("small", num_layers=1), gpt.loss)
    assert settled(resnet.build("resnet18"), resnet.loss)


def test_plain_values_hold_plain_values():
    assert is_plain((1, "a", (2.0, None)))
    assert not is_plain([1])
    assert not is_plain((1, [2]))
