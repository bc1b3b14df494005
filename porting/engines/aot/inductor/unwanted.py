"""Changes that a user does not want are left out, which tells what each is worth; PORTING_LEAVE_OUT names them."""

from __future__ import annotations

import os

__all__ = ["OPTIONAL_CHANGES", "is_wanted", "require_known_changes"]

OPTIONAL_CHANGES = (
    "convolution_kernels",
    "depthwise",
    "library_build",
    "matmul_kernels",
    "moments",
    "planar",
    "product",
    "quick_checks",
    "repeated_values",
    "short_sums",
    "torch_kernels",
    "vector_width",
    "winograd",
)
"""The names of what may be left out: of modules in `optional`, and of single kernels."""

# read where a program is compiled, a part of the key of what is kept
_VARIABLE = "PORTING_LEAVE_OUT"


def is_wanted(change: str) -> bool:
    """Tell whether the environment says nothing against a change.

    >>> is_wanted("short_sums")
    True
    """
    return change not in os.environ.get(_VARIABLE, "").split(",")


def require_known_changes() -> None:
    """Raise ValueError where the environment names a change that there is not."""
    unknown = {*filter(None, os.environ.get(_VARIABLE, "").split(","))} - {*OPTIONAL_CHANGES}
    if unknown:
        raise ValueError(f"{_VARIABLE} names {', '.join(sorted(unknown))}, and there are {', '.join(OPTIONAL_CHANGES)}")
