"""Keep what `forward` assigns to a buffer, `self.mem = beta * self.mem + x`, in the tensor that was registered.

A device knows registered tensors only, and the new value would be lost with the trace; `LossInForward` uses it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

import torch
from torch import nn

from porting.host_tensors import list_held_buffers, walk_modules
from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["keep_assigned_buffers"]


@contextmanager
def keep_assigned_buffers(model: nn.Module) -> Iterator[None]:
    """Copy values that are assigned to buffers of `model` in the context into the tensors that were registered.

    A value of another shape or type is left to the device, which refuses it, and so is a buffer that has two names.
    """
    # BatchNorm's count of batches is assigned anew, and a device lets it pass
    modules = (module for _prefix, module in walk_modules(model) if not isinstance(module, BATCH_NORMS))
    held = list_held_buffers(modules)
    yield
    assigned = [each for each in held if _fits(each.registry.get(each.name), each.tensor)]
    # all before the first write: two buffers may have changed places
    values = [each.registry[each.name].detach().clone() for each in assigned]
    for each, value in zip(assigned, values):
        with torch.no_grad():
            each.tensor.copy_(value)
        each.registry[each.name] = each.tensor


def _fits(now: object, before: torch.Tensor) -> bool:
    if now is before or not isinstance(now, torch.Tensor):
        return False
    return now.shape == before.shape and now.dtype == before.dtype and now.device == before.device
