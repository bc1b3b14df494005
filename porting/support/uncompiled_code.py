"""Keep `torch.compile` out of functions whose work is compiled already, for a device.

torch's own decorator wraps the function, and loads the compiler for it. Here the code of the function is marked
instead: a call costs no more than before, and nothing is loaded. A torch without such a mark, as 2.0, is unchanged.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, TypeVar

from ..torch_insides.compiler import leave_uncompiled

__all__ = ["keep_class_uncompiled", "keep_uncompiled"]

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)

_REASON = "it is compiled for a device already; leave `fullgraph` out, or compile the parts around it"


def keep_uncompiled(function: _Function) -> _Function:
    """Let `function`, and all that it calls, run uncompiled wherever `torch.compile` meets it, and return it.

    A compiled caller has a graph break there, silently; with `fullgraph=True` torch raises an error with the reason.
    """
    leave_uncompiled(function, _REASON)  # type: ignore[arg-type]
    return function


def keep_class_uncompiled(kept: _Class) -> _Class:
    """Do the same for the call and the public methods of the class `kept`, and return it."""
    for name, value in vars(kept).items():
        if isinstance(value, FunctionType) and (name == "__call__" or not name.startswith("_")):
            keep_uncompiled(value)
    return kept
