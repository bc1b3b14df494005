"""Changes of Inductor's functions, in a process that compiles and does nothing else.

A torch whose functions or whose code look different is refused, instead of compiled slowly or wrongly.
"""

from __future__ import annotations

from typing import Any, Callable

import torch

__all__ = ["add_to_header", "find_function", "wrap_function"]

_INCLUDE = "#include <torch/csrc/inductor/cpp_prefix.h>\n"


def find_function(owner: Any, name: str) -> Any:
    """Return a function that a class defines itself; RuntimeError for a torch whose class does not."""
    if name not in vars(owner):
        raise RuntimeError(f"the Inductor of torch {torch.__version__} has no {owner.__name__}.{name}")
    return vars(owner)[name]


def wrap_function(owner: Any, name: str, wrap: Callable[[Any], Any], *, may_be_inherited: bool = False) -> None:
    """Replace a function of a class by what `wrap` makes of it, once; RuntimeError as of `find_function`."""
    original = getattr(owner, name) if may_be_inherited else find_function(owner, name)
    wraps = getattr(original, "porting_wraps", ())
    if wrap not in wraps:
        replaced = wrap(original)
        replaced.porting_wraps = (*wraps, wrap)
        setattr(owner, name, replaced)


def add_to_header(code: str, added: str) -> str:
    """Add C++ behind the header of a group of kernels; RuntimeError for a torch that writes another one."""
    # replaced blindly, so it has to be there exactly once
    if code.count(_INCLUDE) != 1:
        raise RuntimeError(f"the Inductor of torch {torch.__version__} writes kernels in another form")
    return code.replace(_INCLUDE, f"{_INCLUDE}{added}")
