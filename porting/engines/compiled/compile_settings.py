"""The settings, limits and failures of a compilation, as plain data that needs no torch."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import List, Optional

__all__ = ["CompileFailure", "CompileLimits", "CompileSettings", "choose_cpp_compiler"]


@dataclass(frozen=True)
class CompileSettings:
    """What a program is compiled for, besides what it computes.

    `num_threads` is how many threads a kernel uses. `is_deterministic` asks for the deterministic variants of
    operators, as `torch.use_deterministic_algorithms` does.
    """

    num_threads: int = 1
    is_deterministic: bool = False


@dataclass(frozen=True)
class CompileLimits:
    """How long the compiler may take, and how much memory it may have with all its processes together.

    `memory_bytes` is three quarters of what is free when it starts, unless given.
    """

    seconds: float = 600.0
    memory_bytes: Optional[int] = None


class CompileFailure(Exception):  # noqa: N818 - an outcome that callers handle, named as the findings name it
    """A program could not be compiled.

    `kind` is "error" (the compiler refused it), "timeout", "memory", "space" (the disk is full), "crash" (its process
    died), "torch" (it lacks what is needed) or "no-compiler"; `reason` is one sentence without a full stop, `log` the
    end of what the compiler wrote.
    """

    def __init__(self, kind: str, reason: str, *, log: str = "") -> None:
        """Keep the facts."""
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.log = log[-8000:]


def choose_cpp_compiler() -> List[str]:
    """Return the C++ compiler that programs are compiled with, and its first arguments: `CXX`, or the system's."""
    given = shlex.split(os.environ.get("CXX", "").strip())
    return given or ["clang++" if sys.platform == "darwin" else "g++"]
