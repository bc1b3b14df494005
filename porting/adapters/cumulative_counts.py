"""Turn the counts of batches that steer BatchNorm's cumulative average, `momentum=None`, into floats for the device.

A device has no integer variables, so that each call would see the count of the compilation. Ports convert the counts,
and whoever asks the model for its state gets integers all the same.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List

import torch
from torch import nn

from porting.torch_insides.modules import BATCH_NORMS, read_state_hooks

__all__ = ["counted_on_device", "let_device_count", "let_host_count"]

_COUNT = "num_batches_tracked"


def let_device_count(model: nn.Module) -> List[nn.Module]:
    """Turn the counts that steer a cumulative average into floats, in place; return the layers whose were integers.

    >>> norm = nn.BatchNorm1d(2, momentum=None)
    >>> len(let_device_count(norm)), norm.num_batches_tracked, norm.state_dict()["num_batches_tracked"]
    (1, tensor(0.), tensor(0))
    """
    norms = [norm for norm in model.modules() if isinstance(norm, BATCH_NORMS) and norm.momentum is None]
    counts = [norm.num_batches_tracked for norm in norms]
    whole = [norm for norm, count in zip(norms, counts) if count is not None and not count.is_floating_point()]
    for norm in whole:
        read_state_hooks(norm)[_COUNT] = _show_integer
    _exchange_types(whole, torch.float32)
    return whole


def let_host_count(modules: Iterable[nn.Module]) -> None:
    """Turn the counts of `modules` back into integers, when no device counts any more."""
    _exchange_types([each for each in modules if read_state_hooks(each).pop(_COUNT, None)], torch.int64)


def _show_integer(_norm: nn.Module, state: Dict[str, Any], prefix: str, _versions: object) -> None:
    """Show the count in a state dictionary as an integer, as torch does."""
    if prefix + _COUNT in state:
        state[prefix + _COUNT] = state[prefix + _COUNT].to(torch.int64)


@contextmanager
def counted_on_device(model: nn.Module) -> Iterator[None]:
    """Let the counts be floats while the context lasts, and integers again afterwards."""
    changed = let_device_count(model)
    try:
        yield
    finally:
        let_host_count(changed)


def _exchange_types(norms: Iterable[Any], dtype: torch.dtype) -> None:
    # a tensor that is made in inference mode could not be counted in outside of it
    with torch.inference_mode(False):
        for norm in norms:
            norm.num_batches_tracked.data = norm.num_batches_tracked.data.to(dtype)
