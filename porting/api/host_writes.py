"""Noticing that somebody wrote to the host's weights: a loaded state, an `init`, a pruning mask."""

from __future__ import annotations

import weakref
from typing import Any, List, Optional

import torch
from torch import nn

__all__ = ["HostWrites"]

# read without the attribute hooks that a backend puts on the tensors it owns: those would fetch the weights each time
# (the class has another name in torch 2.0)
_TENSOR_BASE: Any = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
_version_of = _TENSOR_BASE._version.__get__


class HostWrites:
    """Counts the writes to the parameters and buffers of a model by torch's own version counters."""

    def __init__(self, model: nn.Module) -> None:
        """Start to watch the tensors that `model` has now; those made in inference mode cannot be watched."""
        tensors = [*model.parameters(), *model.buffers()]
        self._tensors: List[torch.Tensor] = [tensor for tensor in tensors if not tensor.is_inference()]
        self._seen: Optional[int] = None

    def note(self) -> None:
        """Take the tensors as they are for seen."""
        self._seen = self._count()

    def are_new(self) -> bool:
        """Tell whether something was written since the last `note`, and take note of it."""
        before, self._seen = self._seen, self._count()
        return before is not None and before != self._seen

    def ignore_fetches(self, executor: Any) -> None:
        """Let the weights that `executor` brings to the host count as seen.

        PopTorch fetches through the instance's attribute, so that it can be exchanged.
        """
        fetch, own, writes = type(executor).copyWeightsToHost, weakref.ref(executor), weakref.ref(self)

        def copy_weights_to_host() -> None:
            running = own()
            if running is not None:
                fetch(running)
                watching = writes()
                if watching is not None:
                    watching.note()

        executor.copyWeightsToHost = copy_weights_to_host

    def _count(self) -> int:
        with torch._C.DisableTorchFunctionSubclass():
            return sum(map(_version_of, self._tensors))
