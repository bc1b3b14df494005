"""What code of the user's can reach is found by its names: each way to keep a setting, and little beside."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types

import pytest

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
    names.set = lambda name, value: monkeypatch.setitem(globals(), name, value)
    return names


def scale():
    return MODULE.beta


def call_scale():
    return scale() * scale.times


scale.times = 1.0

# how a value is read, and how it is changed
WAYS = {
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


def test_a_value_that_is_gone_is_another_one(world):
    assert changes_of(world.LOSS, lambda: delattr(world.LOSS, "gamma")) != []


def test_libraries_are_not_walked_through():
    values = list_reached_values([("loss", lambda: (pytest.main, sys.modules, dataclasses.field))], [], known=[])

    assert len(values) < 10
