"""Stand-in for PopTorch's compiled part: the names that Python programs use of it."""

from __future__ import annotations

from ._tracing_state import isDispatchTracing
from .errors import Error, RecoverableError, UnrecoverableError

__all__ = ["Error", "RecoverableError", "UnrecoverableError", "ipuHardwareVersion", "isCompilingWithDispatcher"]


def ipuHardwareVersion(num_ipus: int = 1) -> int:
    """Return the architecture of the IPUs found: 0, there is no hardware."""
    del num_ipus
    return 0


def isCompilingWithDispatcher() -> bool:
    """Tell whether a model is being traced."""
    return isDispatchTracing()
