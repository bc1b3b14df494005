"""Set the host's random streams and number of threads for a run, and restore them afterwards.

Recipes, proofs and measured kernels use it.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import Iterator, Optional

import numpy
import torch

__all__ = ["keep_streams", "seed_streams", "use_threads"]


@contextmanager
def keep_streams() -> Iterator[None]:
    """Restore the host's random streams afterwards."""
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        numpy.random.set_state(before[2])


def seed_streams(seed: int) -> None:
    """Start the host's random streams anew."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


@contextmanager
def use_threads(number: Optional[int]) -> Iterator[None]:
    """Compute with this number of threads, or with as many as before, and restore their number afterwards."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
