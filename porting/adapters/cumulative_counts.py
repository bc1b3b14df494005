"""Counts of batches that steer BatchNorm's cumulative average, `momentum=None`: on the device they are floats.

A device has no variables of integers, so that there the count would be the one of the compilation in each call.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List, Sequence

import torch
from torch import nn

from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["counted_on_device", "let_device_count"]


def let_device_count(model: nn.Module) -> List[torch.Tensor]:
    """Make floats of the counts that steer a cumulative average, in place, and return those that were integers.

    >>> norm = nn.BatchNorm1d(2, momentum=None)
    >>> len(let_device_count(norm)), norm.num_batches_tracked
    (1, tensor(0.))
    """
    norms = [norm for norm in model.modules() if isinstance(norm, BATCH_NORMS) and norm.momentum is None]
    counts = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
    whole = [count for count in counts if not count.is_floating_point()]
    _exchange_types(whole, torch.float32)
    return whole


@contextmanager
def counted_on_device(model: nn.Module) -> Iterator[None]:
    """Let the counts be floats while the context lasts, and integers again afterwards."""
    changed = let_device_count(model)
    try:
        yield
    finally:
        _exchange_types(changed, torch.int64)


def _exchange_types(counts: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    # a tensor that is made in inference mode could not be counted in outside of it
    with torch.inference_mode(False):
        for count in counts:
            count.data = count.data.to(dtype)
