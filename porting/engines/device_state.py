"""What a simulated device holds between calls: weights, buffers, constants, optimizer slots, random state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

import torch

from ..capture import StepGraph

__all__ = ["DeviceState"]


@dataclass
class DeviceState:
    """Tensors of one executable on its device, apart from the host's.

    `buffers` has one dictionary for each replica; replicas share it unless the graph writes to buffers. `slots` holds
    the optimizer's state by parameter name: `Accl1` (first moment), `Accl2` (second moment), `Step` (updates done).
    """

    parameters: Dict[str, torch.Tensor]
    buffers: List[Dict[str, torch.Tensor]]
    constants: Tuple[torch.Tensor, ...] = ()
    slots: Dict[str, Dict[str, torch.Tensor]] = field(default_factory=dict)
    rng_state: Optional[torch.Tensor] = None

    @classmethod
    def for_graph(cls, graph: StepGraph, *, replicas: int = 1) -> DeviceState:
        """Make the empty state of `graph`: zeros of the right shapes and types."""
        training = graph.mode == "training"
        parameters = {}
        for info in graph.parameters:
            tensor = torch.zeros(info.shape, dtype=info.dtype)
            parameters[info.name] = tensor.requires_grad_(training and info.requires_grad)
        shared = {info.name: torch.zeros(info.shape, dtype=info.dtype) for info in graph.buffers}
        copies = replicas if graph.mutated_buffers else 1
        buffers = [shared] + [{name: t.clone() for name, t in shared.items()} for _ in range(copies - 1)]
        return cls(parameters, buffers if copies > 1 else [shared] * replicas, graph.constant_values)

    def upload(self, host: Mapping[str, torch.Tensor], *, names: Optional[Iterable[str]] = None) -> None:
        """Copy host tensors into the device's, converting types; only `names` when given."""
        wanted = set(names) if names is not None else None
        with torch.no_grad():
            for tensors in (self.parameters, *self.buffers):
                for name, tensor in tensors.items():
                    if wanted is None or name in wanted:
                        tensor.copy_(host[name])

    def download(self, host: Mapping[str, torch.Tensor]) -> None:
        """Copy the device's tensors into the host's, in place; buffers come from the first replica."""
        with torch.no_grad():
            for name, tensor in self.parameters.items():
                host[name].copy_(tensor)
            for name, tensor in self.buffers[0].items():
                host[name].copy_(tensor)

    def storages(self) -> frozenset[int]:
        """Return the addresses of all memory that outlives a call, to recognise results that alias it."""
        tensors = [*self.parameters.values(), *self.constants]
        for buffers in self.buffers:
            tensors.extend(buffers.values())
        return frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)
