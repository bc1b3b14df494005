"""The limits of a tuning and of a compilation are plain data, set before it is known whether anything is compiled.

Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

__all__ = ["CompileLimits", "TuningLimits"]


@dataclass(frozen=True)
class CompileLimits:
    """How long the compiler may take, and how much memory it may have with all its processes together.

    `memory_bytes` is three quarters of what is free when it starts, unless given.
    """

    seconds: float = 600.0
    memory_bytes: Optional[int] = None


@dataclass(frozen=True)
class TuningLimits:
    """How much tuning may take: `seconds` in all, and `processes` that compile at the same time.

    Measuring takes at most a quarter of the seconds, and `measuring_seconds`. An engine that was asked for by name has
    `compile_seconds`.
    """

    seconds: float = 180.0
    measuring_seconds: float = 30.0
    processes: int = 2
    compile_seconds: float = 600.0
