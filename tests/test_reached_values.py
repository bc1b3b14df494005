"""What code of the user's can reach is found by its names: each way to keep a setting, and little beside."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
import weakref

import pytest
import torch

from porting.reached_values import is_same, list_reached_values


class Schedule:
    def __init__(self):
        self.num_steps, self.unused = 0, 0

    def value(self):
        return 1.0 + self.num_steps


class Trainer:
    factor = 1.0

    def __init__(self):
        self.alpha, self.settings, self.schedule = 1.0, {"weight": 1.0}, Schedule()
        self.epoch, self.history = 0, []

    @property
    def rate(self):
        return self.alpha / 2

    def weight(self):
        return self.schedule.value()

    def compute_loss(self):
        return self.rate * self.settings["weight"] * self.weight() * self.factor

    def train_epoch(self):
        self.epoch += 1
        self.history.append(self.epoch)


class Loss:
    __slots__ = ("gamma",)

    def __init__(self):
        self.gamma = 1.0

    def __call__(self):
        return self.gamma


class Mode(enum.Enum):
    WARM = 1
    FULL = 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    beta: float = 1.0


def make_settings():
    return {
        "TRAINER": Trainer(),
        "LOSS": Loss(),
        "MODE": Mode.WARM,
        "FROZEN": Frozen(),
        "STEP": [0],
        "FLAGS": {"cold"},
        "NESTED": {"a": {"b": [1]}},
    }


MODULE = types.ModuleType("settings_of_a_test")
TRAINER, LOSS, MODE, FROZEN, STEP, FLAGS, NESTED = make_settings().values()


@pytest.fixture
def world(monkeypatch):
    """Give all that the functions below read, made anew, as globals of this file."""
    names = types.SimpleNamespace(**make_settings())
    MODULE.beta = 1.0
    for name, value in vars(names).items():
        monkeypatch.setitem(globals(), name, value)
    monkeypatch.setattr(Trainer, "factor", 1.0)
    names.patch, names.count = monkeypatch.setattr, lambda number: setattr(names.TRAINER.schedule, "num_steps", number)
    names.set = lambda name, value: monkeypatch.setitem(globals(), name, value)
    return names


def scale():
    return MODULE.beta


def call_scale():
    return scale() * scale.times


scale.times = 1.0


def scale_by_default(beta=1.0, *, gamma=1.0):
    return beta * gamma


@functools.wraps(scale_by_default)
def call_decorated():
    return None


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * LOSS.gamma


class Row:
    """Reads what it holds in methods that no code names."""

    def __init__(self):
        self.held, self.rate = [1.0], 1.0

    def __getitem__(self, number):
        return self.held[number]

    def __float__(self):
        return self.rate

    def read_what_may_be_missing(self):
        try:
            return self.missing
        except AttributeError:
            return 1.0


class Strict:
    """An object that raises an error of its own for what it has not."""

    def __getattr__(self, name):
        return TRAINER.settings[name]


bound_beforehand = Reverse.apply
row, layer = Row(), torch.nn.Softplus()
reference = weakref.ref(row)

# how a value is read, and how it is changed
WAYS = {
    "attribute that is missing": (
        lambda w: lambda: getattr(TRAINER, "late", 1.0),
        lambda w: setattr(w.TRAINER, "late", 3.0),
    ),
    "entry that is missing": (
        lambda w: lambda: NESTED.get("late", 1) + NESTED["a"]["b"][0],
        lambda w: w.NESTED.update(late=3),
    ),
    "entry beside others": (
        lambda w: lambda: "late" in NESTED and NESTED["a"],
        lambda w: w.NESTED.update(late=3),
    ),
    "attribute that raises": (
        lambda w: row.read_what_may_be_missing,
        lambda w: w.patch(row, "missing", 3.0, raising=False),
    ),
    "code of a function": (
        lambda w: lambda: scale_by_default(),
        lambda w: w.patch(scale_by_default, "__code__", (lambda beta=1.0, *, gamma=1.0: 3.0).__code__),
    ),
    "default": (lambda w: scale_by_default, lambda w: w.patch(scale_by_default, "__defaults__", (3.0,))),
    "default of a keyword": (
        lambda w: scale_by_default,
        lambda w: w.patch(scale_by_default, "__kwdefaults__", {"gamma": 3.0}),
    ),
    "decorated function": (
        lambda w: lambda: call_decorated(),
        lambda w: w.patch(scale_by_default, "__defaults__", (3.0,)),
    ),
    "method of torch's decorator": (lambda w: torch.no_grad()(w.TRAINER.weight), lambda w: w.count(3)),
    "backward of a custom function": (
        lambda w: lambda x: Reverse.apply(x),
        lambda w: setattr(w.LOSS, "gamma", 3.0),
    ),
    "exchanged backward": (
        lambda w: lambda x: bound_beforehand(x),
        lambda w: w.patch(Reverse, "backward", staticmethod(lambda context, gradient: 2 * gradient)),
    ),
    "exchanged class": (lambda w: lambda: Frozen().beta, lambda w: w.set("Frozen", Loss)),
    "custom function bound beforehand": (
        lambda w: lambda x: bound_beforehand(x),
        lambda w: setattr(w.LOSS, "gamma", 3.0),
    ),
    "index of an object": (lambda w: lambda: row[0], lambda w: w.patch(row, "held", [3.0])),
    "number of an object": (lambda w: lambda: float(row), lambda w: w.patch(row, "rate", 3.0)),
    "weak reference": (lambda w: lambda: reference().rate, lambda w: w.patch(row, "rate", 3.0)),
    "attributes that are computed": (
        lambda w: (lambda strict: lambda: strict.weight)(Strict()),
        lambda w: w.TRAINER.settings.update(weight=3.0),
    ),
    "setting of a layer": (lambda w: lambda x: layer(x), lambda w: w.patch(layer, "beta", 3.0)),
    "attribute": (lambda w: w.TRAINER.compute_loss, lambda w: setattr(w.TRAINER, "alpha", 3.0)),
    "entry of a dictionary": (lambda w: w.TRAINER.compute_loss, lambda w: w.TRAINER.settings.update(weight=3.0)),
    "method of a method": (lambda w: w.TRAINER.compute_loss, lambda w: setattr(w.TRAINER.schedule, "num_steps", 3)),
    "class": (lambda w: w.TRAINER.compute_loss, lambda w: setattr(Trainer, "factor", 3.0)),
    "shadowed class": (lambda w: w.TRAINER.compute_loss, lambda w: setattr(w.TRAINER, "factor", 3.0)),
    "shadowed method": (lambda w: w.TRAINER.compute_loss, lambda w: setattr(w.TRAINER, "weight", lambda: 3.0)),
    "callable object with slots": (lambda w: w.LOSS, lambda w: setattr(w.LOSS, "gamma", 3.0)),
    "nested containers": (lambda w: lambda: NESTED["a"]["b"][0], lambda w: w.NESTED["a"]["b"].append(3)),
    "counter in a list": (lambda w: lambda: STEP[0], lambda w: w.STEP.__setitem__(0, 3)),
    "set": (lambda w: lambda: "hot" in FLAGS, lambda w: w.FLAGS.add("hot")),
    "enumeration": (lambda w: lambda: MODE is Mode.WARM, lambda w: w.set("MODE", Mode.FULL)),
    "exchanged dataclass": (lambda w: lambda: FROZEN.beta, lambda w: w.set("FROZEN", Frozen(3.0))),
    "module of the user's": (lambda w: call_scale, lambda w: setattr(MODULE, "beta", 3.0)),
    "attribute of a function": (lambda w: call_scale, lambda w: setattr(scale, "times", scale.times + 1)),
    "exchanged function": (lambda w: call_scale, lambda w: w.set("scale", lambda: 3.0)),
    "getattr": (lambda w: lambda: getattr(LOSS, "gamma"), lambda w: setattr(w.LOSS, "gamma", 3.0)),  # noqa: B009
    "all entries": (lambda w: lambda: sum(TRAINER.settings.values()), lambda w: w.TRAINER.settings.update(new=3.0)),
    "all keys": (
        lambda w: lambda: len([key for key in TRAINER.settings]),
        lambda w: w.TRAINER.settings.update(new=3.0),
    ),
    "partial": (lambda w: functools.partial(lambda pair: pair[0], w.STEP), lambda w: w.STEP.insert(0, 3)),
    "keyword of a partial": (
        lambda w: functools.partial(lambda pair: pair, pair=w.STEP),
        lambda w: w.STEP.insert(0, 3),
    ),
}


def changes_of(function, change):
    values = list_reached_values([("loss", function)], [], known=[])
    assert all(is_same(value.value, value.read()) for value in values)
    change()
    return [value.name for value in values if not is_same(value.value, value.read())]


@pytest.mark.parametrize("way", WAYS)
def test_a_change_of_what_code_reads_is_seen(way, world):
    read, change = WAYS[way]

    assert changes_of(read(world), lambda: change(world)) != []


def test_a_variable_of_the_enclosing_function_is_seen():
    beta = 1.0

    def change():
        nonlocal beta
        beta = 3.0

    assert changes_of(lambda: beta, change) == ["beta"]


def test_what_the_code_does_not_mention_is_not_looked_at(world):
    def change():
        world.TRAINER.train_epoch()
        world.TRAINER.schedule.unused = 3

    assert changes_of(world.TRAINER.compute_loss, change) == []


def test_a_global_that_has_the_name_of_an_attribute_is_not_looked_at(world):
    world.patch(world.TRAINER, "NESTED", 1.0, raising=False)

    assert changes_of(lambda: TRAINER.NESTED, lambda: world.set("NESTED", {})) == []


def test_a_value_that_is_gone_is_another_one(world):
    assert changes_of(world.LOSS, lambda: delattr(world.LOSS, "gamma")) != []


def test_libraries_are_not_walked_through():
    values = list_reached_values([("loss", lambda: (pytest.main, sys.modules, dataclasses.field))], [], known=[])

    assert len(values) < 10
