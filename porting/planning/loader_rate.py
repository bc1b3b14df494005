"""This module measures how many samples a second a user's loader gives by itself, in about a second.

`porting plan` does so for a program with a `loader`: a machine trains no faster than its host feeds it.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional

import torch

from ..structure import flatten_tensors

__all__ = ["LoaderRate", "measure_loader"]

_SECONDS = 1.0
_BARS = 2


@dataclass(frozen=True)
class LoaderRate:
    """What a loader gave: samples a second, two standard errors to each side, and of how many batches that is."""

    samples_per_second: float
    low: float
    high: float
    num_batches: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"the loader gives {self.samples_per_second:,.0f} samples a second ({self.low:,.0f} to {self.high:,.0f}; "
            f"{self.num_batches} batches in {self.seconds:.1f} s, by itself on this machine)"
        )


def measure_loader(batches: Iterable[Any], *, seconds: float = _SECONDS) -> Optional[LoaderRate]:
    """Take batches for so many seconds, and one at least; None where there are none, or none with rows.

    The first batch is not counted where there are others, since workers start with it. The random stream of the
    program stays as it was.
    """
    begin = before = time.perf_counter()
    times: List[float] = []
    rows: List[int] = []
    with torch.random.fork_rng(devices=[]):
        for batch in batches:
            now = time.perf_counter()
            times.append(now - before)
            rows.append(next((tensor.shape[0] for tensor in flatten_tensors(batch) if tensor.dim()), 0))
            before = now
            if now - begin >= seconds:
                break
    counted = slice(1 if len(times) > 1 else 0, None)
    times, rows = times[counted], rows[counted]
    if not sum(rows):
        return None
    rate = sum(rows) / max(sum(times), 1e-9)
    spread = 0.0
    if len(times) > 1:
        spread = _BARS * statistics.stdev(times) / len(times) ** 0.5 / max(statistics.mean(times), 1e-9)
    return LoaderRate(rate, rate / (1 + spread), rate * (1 + spread), len(times), sum(times))
