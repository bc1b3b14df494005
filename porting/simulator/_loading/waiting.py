"""Measure the time that a program waits for its data."""

from __future__ import annotations

import time
from typing import Any, Iterator

__all__ = ["TimedBatches", "WaitingTime"]


class WaitingTime:
    """Seconds, added up."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def next_of(self, batches: Iterator[Any]) -> Any:
        """Return the next of `batches` and count what that takes, also where it is an exception."""
        start = time.perf_counter()
        try:
            return next(batches)
        finally:
            self.seconds += time.perf_counter() - start


class TimedBatches:
    """Iterates over `batches` and counts in `waiting` what each takes; else it is the same iterator."""

    def __init__(self, batches: Iterator[Any], waiting: WaitingTime) -> None:
        self._batches, self._waiting = batches, waiting

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._waiting.next_of(self._batches)

    def __len__(self) -> int:
        return len(self._batches)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name in ("_batches", "_waiting"):  # of an object that is being copied
            raise AttributeError(name)
        return getattr(self._batches, name)
