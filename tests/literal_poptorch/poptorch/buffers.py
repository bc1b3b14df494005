"""Buffers of replicas: floats are each replica's own, integers are constants, and the host has the first replica's."""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, List

import torch

__all__ = ["ReplicaBuffers"]


class ReplicaBuffers:
    """The buffers of a model as each replica sees them; outside of a replica's turn the model has the first one's."""

    def __init__(self, model: torch.nn.Module, num_replicas: int) -> None:
        self._model = model
        self._own: List[Dict[str, torch.Tensor]] = [self._copies() for _ in range(num_replicas)]

    @contextlib.contextmanager
    def turn_of(self, replica: int) -> Iterator[None]:
        """Give the model the buffers of a replica, and keep what becomes of the floats."""
        self._own[0] = self._copies()
        self._write(self._own[replica])
        try:
            yield
            self._own[replica].update({name: b for name, b in self._copies().items() if b.is_floating_point()})
        finally:
            self._write(self._own[0])

    def _copies(self) -> Dict[str, torch.Tensor]:
        return {name: buffer.detach().clone() for name, buffer in self._model.named_buffers()}

    def _write(self, values: Dict[str, torch.Tensor]) -> None:
        with torch.no_grad():
            for name, buffer in self._model.named_buffers():
                buffer.copy_(values[name])
