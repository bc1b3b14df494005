"""Buffers that `forward` assigns anew, `self.mem = beta * self.mem + x`: their values go into the registered tensors.

A device knows the tensors that were registered, and what it is given by other names is lost with the trace.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import Any, Iterator, List, MutableMapping, Tuple

import torch
from torch import nn
from torch.jit import ScriptModule

from porting.host_tensors import read_registry, walk_modules
from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["keep_assigned_buffers"]

_OWN_WAY = BATCH_NORMS if isinstance(BATCH_NORMS, tuple) else (BATCH_NORMS,)
_Held = Tuple[MutableMapping[str, Any], str, torch.Tensor]


@contextmanager
def keep_assigned_buffers(model: nn.Module) -> Iterator[None]:
    """Write what was assigned to buffers of `model` while the context lasts into the tensors that they were before.

    What has another shape or type is left to the device, which refuses it, and so is a buffer that has two names.
    """
    held = _list_buffers(model)
    yield
    assigned = [(registry, name, tensor) for registry, name, tensor in held if _fits(registry.get(name), tensor)]
    # all before the first write: two buffers may have changed places
    values = [registry[name].detach().clone() for registry, name, _tensor in assigned]
    for (registry, name, tensor), value in zip(assigned, values):
        with torch.no_grad():
            tensor.copy_(value)
        registry[name] = tensor


def _list_buffers(model: nn.Module) -> List[_Held]:
    """List the buffers of one name; BatchNorm's count of batches is assigned anew, and a device lets it pass."""
    modules = [module for _prefix, module in walk_modules(model)]
    registries = [
        read_registry(module, "_buffers") for module in modules if not isinstance(module, (*_OWN_WAY, ScriptModule))
    ]
    held = [(registry, name, each) for registry in registries for name, each in registry.items() if each is not None]
    uses = Counter(id(tensor) for _registry, _name, tensor in held)
    return [item for item in held if uses[id(item[2])] == 1]


def _fits(now: Any, before: torch.Tensor) -> bool:
    if now is before or not isinstance(now, torch.Tensor):
        return False
    return now.shape == before.shape and now.dtype == before.dtype and now.device == before.device
