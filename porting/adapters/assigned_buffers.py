"""Buffers that `forward` assigns anew, `self.mem = beta * self.mem + x`: their values go into the registered tensors.

A device knows the tensors that were registered, and what it is given by other names is lost with the trace.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator, List

import torch
from torch import nn

from porting.host_tensors import HeldBuffer, list_held_buffers, walk_modules
from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["keep_assigned_buffers"]


@contextmanager
def keep_assigned_buffers(model: nn.Module) -> Iterator[None]:
    """Write what was assigned to buffers of `model` while the context lasts into the tensors that they were before.

    What has another shape or type is left to the device, which refuses it, and so is a buffer that has two names.
    """
    held = _list_buffers(model)
    yield
    assigned = [each for each in held if _fits(each.registry.get(each.name), each.tensor)]
    # all before the first write: two buffers may have changed places
    values = [each.registry[each.name].detach().clone() for each in assigned]
    for each, value in zip(assigned, values):
        with torch.no_grad():
            each.tensor.copy_(value)
        each.registry[each.name] = each.tensor


def _list_buffers(model: nn.Module) -> List[HeldBuffer]:
    # BatchNorm's count of batches is assigned anew, and a device lets it pass
    return list_held_buffers(module for _prefix, module in walk_modules(model) if not isinstance(module, BATCH_NORMS))


def _fits(now: object, before: torch.Tensor) -> bool:
    if now is before or not isinstance(now, torch.Tensor):
        return False
    return now.shape == before.shape and now.dtype == before.dtype and now.device == before.device
