"""Settings of a measurement: rounds, turns, parity, and what else is measured besides the steady state."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Dict, Optional

__all__ = ["BenchSettings"]


@dataclass(frozen=True)
class BenchSettings:
    """Plain values only, so that settings can travel in a file.

    Both sides have `rounds` turns each, one after the other. A turn takes about `turn_seconds`, or `calls_per_turn`
    calls where that is given. `parity_steps` are compared before. `start_up_runs` fresh processes of each side are
    timed to the end of their first step, and `cold_starts` of the port that find no executable; 0 leaves that out.
    `eager_precision`, `eager_memory_format` and `eager_optimizer` ("fused", or torch's "default") are what the plain
    side uses. `threads` is torch's number of threads on both sides, None for torch's own choice.
    """

    rounds: int = 15
    turn_seconds: float = 0.2
    calls_per_turn: Optional[int] = None
    parity_steps: int = 20
    seed: int = 0
    threads: Optional[int] = None
    device: str = "auto"
    eager_precision: str = "float32"
    eager_memory_format: str = "contiguous"
    eager_optimizer: str = "fused"
    memory: bool = True
    data: bool = True
    start_up_runs: int = 0
    cold_starts: int = 0

    def quick(self) -> BenchSettings:
        """Return settings for a first look: fewer and shorter turns, and the steady state alone."""
        return dataclasses.replace(
            self, rounds=5, turn_seconds=0.05, memory=False, data=False, start_up_runs=0, cold_starts=0
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values."""
        return dataclasses.asdict(self)
