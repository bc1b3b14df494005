"""Name the private parts of torch's data loader: its iterators, what they read with, and their processes."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch.utils.data import DataLoader

from .parts import Parts

__all__ = [
    "PARTS",
    "end_processes",
    "exchange_reader",
    "find_order",
    "find_reader",
    "find_running_iterator",
    "forget_running_iterator",
    "makes_batches",
    "probe",
]

PARTS = Parts("batches are read sample by sample")
probe = PARTS.probe

_SAMPLES: Any = [0]
# with a generator of its own: the first draw would otherwise be one of the program's
_EXAMPLE: Any = DataLoader(_SAMPLES, generator=torch.Generator())
_ITERATOR: Any = iter(_EXAMPLE)
_read_running = PARTS.reader(
    "_iterator",
    of=_EXAMPLE,
    instead=lambda _loader: None,
    loses="a loader with persistent workers is not resumed exactly",
)
_read_collation = PARTS.reader("_auto_collation", of=_EXAMPLE, instead=lambda _loader: False)
_read_fetcher = PARTS.reader("_dataset_fetcher", of=_ITERATOR, instead=lambda _iterator: None)
_read_rows = PARTS.reader(
    "_sampler_iter", of=_ITERATOR, instead=lambda iterator: iterator, loses="batches that were seen are loaded again"
)


def makes_batches(loader: object) -> bool:
    """Tell whether a loader puts batches together itself."""
    return bool(_read_collation(loader))


def find_running_iterator(loader: object) -> Optional[Any]:
    """Return the iterator that a loader of torch's keeps from epoch to epoch; None where there is none."""
    return _read_running(loader) if isinstance(loader, DataLoader) else None


def forget_running_iterator(loader: DataLoader) -> None:
    """Let a loader, which is a copy, begin without the iterator of the other."""
    loader._iterator = None


def find_reader(iterator: object) -> Optional[Any]:
    """Return what reads the samples for an iterator that loads in this process; None where torch does not tell."""
    return _read_fetcher(iterator)


def exchange_reader(iterator: object, reader: object, rows: object) -> None:
    """Let an iterator read by `reader`, and go through `rows` in place of the sampler if there are any."""
    vars(iterator).update(_dataset_fetcher=reader, _sampler_iter=rows or _read_rows(iterator))


def find_order(iterator: object) -> Any:
    """Return the iterator over what an iterator of a loader is about to read; itself where torch does not tell."""
    return _read_rows(iterator) if hasattr(iterator, "_sampler_iter") else iterator


def end_processes(iterator: object) -> None:
    """End the processes of a loader's iterator, to which a frame of a traceback may still refer."""
    if hasattr(iterator, "_shutdown_workers"):
        iterator._shutdown_workers()
