"""This module measures whether the data loader keeps up with the training.

It times the step on one repeated batch, the loader alone, and both together.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from porting.bench.workloads import Batch, Workload
from porting.structure import flatten_tensors, rebuild

__all__ = ["DataPath", "DataSource", "generate_dataset", "make_plain_batches", "measure_data_path"]

DataSource = Union[Dataset, DataLoader]
"""What the data path is measured with."""

_MAX_GENERATED_BYTES = 64 * 1024 * 1024
_MAX_GENERATED_CALLS = 32
_MIN_CALLS = 5


@dataclass(frozen=True)
class DataPath:
    """Seconds of a call: of the step alone, of the loader alone, of both, and what of the latter is waiting for data.

    `source` says which data it was.
    """

    source: str
    synthetic_seconds: float
    loader_seconds: float
    end_to_end_seconds: float
    waiting_seconds: float
    num_calls: int

    @property
    def bound(self) -> float:
        """How much longer the loader takes for a batch than the step: above 1 the data hold the step up.

        >>> DataPath("a list", 0.1, 0.26, 0.3, 0.2, num_calls=9).bound
        2.6
        """
        return self.loader_seconds / self.synthetic_seconds

    @property
    def waiting_share(self) -> float:
        """Share of the time of training with the loader that passes in waiting for it."""
        return self.waiting_seconds / self.end_to_end_seconds


def generate_dataset(workload: Workload) -> Optional[Dataset[Any]]:
    """Make a tensor dataset that repeats the workload's rows; None where the batch is not plain tensors with rows."""
    batch = workload.batch
    tensors = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if isinstance(batch, Mapping) or not all(isinstance(tensor, torch.Tensor) and tensor.dim() for tensor in tensors):
        return None
    if len({tensor.shape[0] for tensor in tensors}) != 1:
        return None
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    copies = int(max(2, min(_MAX_GENERATED_CALLS, _MAX_GENERATED_BYTES // max(1, size))))
    return TensorDataset(*(torch.cat([tensor] * copies) for tensor in tensors))


def make_plain_batches(workload: Workload, source: DataSource) -> Callable[[], Iterator[Batch]]:
    """Return a function that begins an epoch of combined batches as a plain loop would load them, step by step."""
    if not isinstance(source, DataLoader):
        source = DataLoader(source, batch_size=workload.samples_per_step, drop_last=True)
    if workload.steps_per_call == 1:
        return lambda: iter(source)

    def in_calls() -> Iterator[Batch]:
        steps = iter(source)
        while True:
            parts = [part for _, part in zip(range(workload.steps_per_call), steps)]
            if len(parts) < workload.steps_per_call:
                return
            tensors = zip(*(flatten_tensors(part, like=parts[0]) for part in parts))
            yield rebuild(parts[0], map(torch.cat, tensors))

    return in_calls


def measure_data_path(
    train: Callable[[Batch], Any], epochs: Callable[[], Iterable[Batch]], *, source: str, batch: Batch, seconds: float
) -> Optional[DataPath]:
    """Measure training on one `batch` again and again, the loader alone, and the training on what it loads.

    Each for about so many seconds, one right after the other. None for a loader without a single batch.
    """
    _, repeating = _time_epochs(lambda: itertools.repeat(batch, _MIN_CALLS), train, seconds)
    loading, _ = _time_epochs(epochs, None, seconds)
    waiting, working = _time_epochs(epochs, train, seconds)
    if not loading or not waiting:
        return None
    return DataPath(
        source=source,
        synthetic_seconds=sum(repeating) / len(repeating),
        loader_seconds=sum(loading) / len(loading),
        end_to_end_seconds=(sum(waiting) + sum(working)) / len(waiting),
        waiting_seconds=sum(waiting) / len(waiting),
        num_calls=len(waiting),
    )


def _time_epochs(
    epochs: Callable[[], Iterable[Batch]], train: Optional[Callable[[Batch], Any]], seconds: float
) -> Tuple[List[float], List[float]]:
    """Go through epochs until the time is up; return the seconds of waiting and of training of each call."""
    waiting: List[float] = []
    working: List[float] = []
    deadline = time.perf_counter() + seconds
    while True:
        before, num_calls = time.perf_counter(), len(waiting)
        for batch in epochs():
            ready = time.perf_counter()
            waiting.append(ready - before)
            if train is not None:
                train(batch)
            before = time.perf_counter()
            working.append(before - ready)
            if before > deadline and len(waiting) >= _MIN_CALLS:
                return waiting, working
        if len(waiting) == num_calls:
            return waiting, working
