"""What a simulated device holds between calls: weights, buffers, constants, optimizer slots, random state."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

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
    written: FrozenSet[str] = frozenset()
    _storages: Optional[FrozenSet[int]] = field(default=None, init=False, repr=False)

    @classmethod
    def for_graph(cls, graph: StepGraph, *, replicas: int = 1) -> DeviceState:
        """Make the empty state of `graph`: zeros of the right shapes, types and memory formats."""
        training = graph.mode == "training"
        with torch.inference_mode(False):
            # the first placeholders are the parameters, then come the buffers
            infos = graph.parameters + graph.buffers
            patterns = {info.name: node.meta["val"] for info, node in zip(infos, graph.placeholders)}
            parameters = {
                info.name: _zeros_like(patterns[info.name]).requires_grad_(training and info.requires_grad)
                for info in graph.parameters
            }
            copies = replicas if graph.mutated_buffers else 1
            buffers = [{info.name: _zeros_like(patterns[info.name]) for info in graph.buffers} for _ in range(copies)]
        trained = {name for name, tensor in parameters.items() if tensor.requires_grad}
        return cls(
            parameters,
            buffers if copies == replicas else buffers * replicas,
            graph.constant_values,
            written=frozenset(trained | graph.mutated_buffers | graph.mutated_parameters),
        )

    def upload(self, host: Mapping[str, torch.Tensor], *, names: Optional[Iterable[str]] = None) -> None:
        """Copy host tensors into the device's, converting types; only `names` when given."""
        wanted = set(names) if names is not None else None
        with torch.no_grad():
            for tensors in (self.parameters, *self.buffers):
                for name, tensor in tensors.items():
                    if wanted is None or name in wanted:
                        tensor.copy_(host[name])

    def download(self, host: Mapping[str, torch.Tensor]) -> None:
        """Copy what a call may have changed into the host's tensors, in place; buffers come from the first replica.

        The others stay as they are: what the device holds of them may have lost range or precision.
        """
        with torch.no_grad():
            for tensors in (self.parameters, self.buffers[0]):
                for name, tensor in tensors.items():
                    if name in self.written:
                        host[name].copy_(tensor)

    def storages(self) -> FrozenSet[int]:
        """Return the addresses of all memory that outlives a call, to recognise results that alias it.

        They are looked up once: a state's tensors are written to, never exchanged.
        """
        if self._storages is None:
            tensors = [*self.parameters.values(), *self.constants]
            for buffers in self.buffers:
                tensors.extend(buffers.values())
            self._storages = frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)
        return self._storages


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """Make zeros with the shape, type and memory format of `tensor`, which has no values."""
    pattern = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return torch.zeros_like(pattern)  # overlapping strides become ordinary ones
