"""Delay loading torch's compiler until something is compiled with it; making an optimizer no longer loads it.

torch excludes some of its own functions from compiling, those of optimizers among them, and loads the compiler for
that: a second of work at the start of each program that makes an optimizer. A ported program never calls such an
optimizer's `step`, which would load the compiler in any case.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

__all__ = ["is_compiler_loaded", "load_compiler_late", "optimizers_load_compiler_late"]

_COMPILER = "torch._dynamo"
# where torch's wrapper keeps what it calls in the end, once it has loaded the compiler
_KEPT = "__dynamo_disable"


def is_compiler_loaded() -> bool:
    """Tell whether torch's compiler is loaded in this process, or is being loaded by a thread."""
    return _COMPILER in sys.modules


def load_compiler_late(wrapper: object) -> bool:
    """Let a function that torch excludes from compiling run without loading the compiler.

    A compiler that is not loaded compiles nothing, so there is nothing to exclude. Once any part of the program has
    loaded it, torch's own wrapper works as if this function had never been called. Returns whether `wrapper` is such a
    function of a torch that works in this way; all others are unchanged.
    """
    function = getattr(wrapper, "__wrapped__", None)
    code = getattr(wrapper, "__code__", None)
    if not callable(wrapper) or function is None or code is None or _KEPT not in code.co_consts or is_compiler_loaded():
        return False

    def until_it_is_loaded(*args: Any, **kwargs: Any) -> Any:
        if not is_compiler_loaded():
            return function(*args, **kwargs)
        if function.__dict__.get(_KEPT) is until_it_is_loaded:
            delattr(function, _KEPT)
        return wrapper(*args, **kwargs)

    setattr(function, _KEPT, until_it_is_loaded)
    return True


def optimizers_load_compiler_late() -> None:
    """Let optimizers be made, and their state be read and loaded, without loading torch's compiler."""
    for function in vars(torch.optim.Optimizer).values():
        load_compiler_late(function)
