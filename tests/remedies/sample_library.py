"""Functions as a library has them, for tests that change their source."""

from __future__ import annotations

import functools

FACTOR = 3


def decorated(function):
    @functools.wraps(function)
    def call(*args, **kwargs):
        return ("decorated", function(*args, **kwargs))

    return call


def scale(x, *, by=2):
    y = x * by
    return y + FACTOR


class Base:
    def name(self):
        return "base"


class Model(Base):
    def name(self, suffix="!"):
        lengths = [len(super().name())]
        assert lengths[0] > 100
        return super().name() + suffix

    @decorated
    def place(self, x):
        raise ValueError(x)
