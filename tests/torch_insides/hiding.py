"""A compiler that does not find some parts of torch, named by a variable; a process that compiles loads it in tests."""

from __future__ import annotations

import os

from porting.torch_insides import parts

_look_up = parts.look_up


def _look_up_the_others(place):
    if place in os.environ.get("HIDDEN_PARTS", "").split():
        raise AttributeError(place)
    return _look_up(place)


parts.look_up = _look_up_the_others

from porting.engines.aot.compiler import compile_here, probe  # noqa: E402, F401 - after the part is hidden
