"""The settings of a compilation and its C++ compiler, which need no torch."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import List

__all__ = ["CompileSettings", "choose_cpp_compiler"]


@dataclass(frozen=True)
class CompileSettings:
    """What a program is compiled for, besides what it computes.

    `num_threads` is how many threads a kernel uses. `is_deterministic` asks for the deterministic variants of
    operators, as `torch.use_deterministic_algorithms` does.
    """

    num_threads: int = 1
    is_deterministic: bool = False


def choose_cpp_compiler() -> List[str]:
    """Return the C++ compiler that programs are compiled with, and its first arguments: `CXX`, or the system's."""
    given = shlex.split(os.environ.get("CXX", "").strip())
    return given or ["clang++" if sys.platform == "darwin" else "g++"]
