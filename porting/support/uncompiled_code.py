"""Functions that `torch.compile` does not look into: what they do is compiled already, for a device.

torch's own way to say so wraps the function, and loads the compiler for it. Here the code of the function is marked
instead: a call costs what it did, and nothing is loaded. A torch that has no such mark, as 2.0, is left as it is.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, TypeVar

import torch

__all__ = ["keep_class_uncompiled", "keep_uncompiled"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

_REASON = "it is compiled for a device already; leave `fullgraph` out, or compile the parts around it"


def keep_uncompiled(function: _Function) -> _Function:
    """Let `function`, and all that it calls, run as it is wherever `torch.compile` comes upon it, and return it.

    A compiled caller has a graph break there, silently; with `fullgraph=True` it is torch's error, which tells why.
    """
    core: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    if hasattr(core, "set_code_exec_strategy"):
        skip = core._FrameAction.SKIP
        # the first is for the function itself, the second for what it calls
        core.set_code_exec_strategy(function.__code__, core._FrameExecStrategy(skip, skip))
        # a caller that is compiled asks for these before it looks into the function
        vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=_REASON)
    return function


def keep_class_uncompiled(kept: _Class) -> _Class:
    """Do so for the call and the public methods of the class `kept`, and return it."""
    for name, value in vars(kept).items():
        if isinstance(value, FunctionType) and (name == "__call__" or not name.startswith("_")):
            keep_uncompiled(value)
    return kept
