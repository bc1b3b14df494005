"""The limits of a tuning, which are set before it is known whether anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TuningLimits"]


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
