"""The state of a simulated device between calls: weights, buffers, constants, optimizer slots, random state."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from .call_plan import ReplicaGroups

__all__ = ["DeviceState"]

_NO_GROUPS: Mapping[str, ReplicaGroups] = {}


@dataclass
class DeviceState:
    """Tensors of one executable on its device, apart from the host's.

    A parameter that differs between groups of replicas (`groups`) has a part for each, `weight[0]`, `weight[1]`, ...;
    every other is its own only part. `parameters` holds the parts, `parts` their names by the parameter's; the host
    sees the parts of a grouped one along a leading dimension. `buffers` has one dictionary for each replica; replicas
    share it unless the graph writes to buffers. `slots` holds the optimizer's state of each part: `Accl1` (first
    moment), `Accl2` (second moment), `Step` (updates done). `loss_scale_factor` multiplies the optimizer's loss scaling
    where that adapts itself; `final_loss_scale` is what the last step's loss was multiplied by.
    """

    parameters: Dict[str, torch.Tensor]
    buffers: List[Dict[str, torch.Tensor]]
    constants: Tuple[torch.Tensor, ...] = ()
    slots: Dict[str, Dict[str, torch.Tensor]] = field(default_factory=dict)
    rng_state: Optional[torch.Tensor] = None
    written: FrozenSet[str] = frozenset()
    groups: Mapping[str, ReplicaGroups] = field(default_factory=dict)
    parts: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    loss_scale_factor: Optional[torch.Tensor] = None
    final_loss_scale: float = 1.0
    # Looked up once for all calls. Both hold only because tensors of a state are written to in place and never
    # exchanged for others.
    _storages: Optional[FrozenSet[int]] = field(default=None, init=False, repr=False)
    _arguments: Dict[int, Tuple[torch.Tensor, ...]] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def for_graph(
        cls,
        graph: StepGraph,
        *,
        replicas: int = 1,
        groups: Mapping[str, ReplicaGroups] = _NO_GROUPS,
        has_memory: bool = True,
    ) -> DeviceState:
        """Make the empty state of `graph`: zeros of the right shapes, types and memory formats.

        `groups` names the parameters that differ between groups of replicas. Without memory it tells what there will
        be, and nothing can run on it.
        """
        training = graph.mode == "training"
        names = [info.name for info in graph.parameters]
        parts: Dict[str, Tuple[str, ...]] = {name: (name,) for name in names}
        for name in groups.keys() & set(names):
            parts[name] = tuple(f"{name}[{group}]" for group in range(groups[name].num_groups))
        make_zeros = functools.partial(_make_zeros_like, device="cpu" if has_memory else "meta")
        # A state that was made in inference mode could never be trained, nor written to in place.
        with torch.inference_mode(False):
            # the first placeholders are the parameters, then come the buffers
            infos = graph.parameters + graph.buffers
            patterns = {info.name: node.meta["val"] for info, node in zip(infos, graph.placeholders)}
            parameters = {
                part: make_zeros(patterns[info.name]).requires_grad_(training and info.requires_grad)
                for info in graph.parameters
                for part in parts[info.name]
            }
            # Replicas with equal buffers share one dictionary; statistics that each of them updates are its own.
            copies = replicas if graph.mutated_buffers else 1
            buffers = [{info.name: make_zeros(patterns[info.name]) for info in graph.buffers} for _ in range(copies)]
        trained = {info.name for info in graph.parameters if training and info.requires_grad}
        return cls(
            parameters,
            buffers if copies == replicas else buffers * replicas,
            graph.constant_values,
            written=frozenset(trained | graph.mutated_buffers | graph.mutated_parameters),
            groups=dict(groups),
            parts=parts,
        )

    def copy_for(self, graph: StepGraph) -> DeviceState:
        """Return a copy that shares constants at most with this state, in the order of memory that `graph` wants."""
        copied = DeviceState.for_graph(graph, replicas=len(self.buffers), groups=self.groups)
        copied.slots = {name: {} for name in self.slots}
        copied.write_back(self)
        return copied

    def write_back(self, other: DeviceState) -> None:
        """Take the values of `other`, a state of the same step, in place; state of the optimizer that it lacks goes."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(other.parameters[name])
            for buffers, others in zip(self.buffers, other.buffers):
                for name, buffer in buffers.items():
                    buffer.copy_(others[name])
            for name in self.slots.keys() - other.slots.keys():
                del self.slots[name]
            for name, slots in other.slots.items():
                _write_slots(self.slots.setdefault(name, {}), slots, self.parameters[name])
        self.rng_state = None if other.rng_state is None else other.rng_state.clone()
        factor = other.loss_scale_factor
        if self.loss_scale_factor is None or factor is None:
            self.loss_scale_factor = None if factor is None else factor.clone()
        else:
            self.loss_scale_factor.copy_(factor)
        self.final_loss_scale = other.final_loss_scale

    @property
    def names(self) -> List[str]:
        """The names of all parameters and buffers, as the host has them."""
        return [*self.parts, *self.buffers[0]]

    def list_arguments(self, replica: int) -> Tuple[torch.Tensor, ...]:
        """Return the parameters and buffers that a replica's graph works on; a state's tensors are never exchanged."""
        found = self._arguments.get(replica)
        if found is None:
            own = (self.parameters[self.find_part(name, replica)] for name in self.parts)
            found = (*own, *self.buffers[replica].values())
            self._arguments[replica] = found
        return found

    def find_part(self, name: str, replica: int) -> str:
        """Return the name of the part of a parameter that a replica has."""
        return self.parts[name][self.groups[name].find_group(replica) if name in self.groups else 0]

    def upload(self, host: Mapping[str, torch.Tensor], *, names: Optional[Iterable[str]] = None) -> None:
        """Copy host tensors into the device's, converting types; only `names` when given."""
        wanted = set(names) if names is not None else None
        with torch.no_grad():
            for name, parts in self.parts.items():
                if wanted is None or name in wanted:
                    for part, value in zip(parts, self._split_into_parts(name, host[name])):
                        self.parameters[part].copy_(value)
            for buffers in self.buffers:
                for name, tensor in buffers.items():
                    if wanted is None or name in wanted:
                        # `copy_` converts types and layouts: the host's order of elements in memory is not the
                        # device's.
                        tensor.copy_(host[name])

    def _split_into_parts(self, name: str, value: torch.Tensor) -> Sequence[torch.Tensor]:
        groups = self.groups.get(name)
        if groups is None:
            return [value]
        if len(value) == groups.num_groups:
            return value.unbind()
        # it came from the device with a value for each replica
        return [value[groups.find_first_replica(group)] for group in range(groups.num_groups)]

    def download(self, host: Mapping[str, torch.Tensor]) -> None:
        """Copy what a call may have changed into the host's tensors, in place; buffers come from the first replica.

        The others stay as they are: what the device holds of them may have lost range or precision. Names that the
        host does not have are skipped.
        """
        with torch.no_grad():
            for name in self.names:
                # What no call writes to may be more precise on the host, where narrowing has not touched it.
                if name in self.written and name in host:
                    host[name].copy_(self.read_value(name))

    def restore(self, host: Mapping[str, torch.Tensor]) -> None:
        """Copy what no call changes into the host's tensors too, in place, where the host has another value by now.

        A value that the device holds with less range or precision is not another one.
        """
        with torch.no_grad():
            for name in self.names:
                if name not in self.written and name in host:
                    value = self.read_value(name)
                    # Compared in the device's type: a float64 buffer that was only narrowed is still the same.
                    if not torch.equal(host[name].to(value.dtype), value):
                        host[name].copy_(value)

    def read_value(self, name: str) -> torch.Tensor:
        """Return a parameter or buffer in the form in which the host gets it, not to be written to."""
        if name not in self.parts:
            return self.buffers[0][name]
        groups, parts = self.groups.get(name), self.parts[name]
        if groups is None:
            return self.parameters[name].detach()
        # one value for each group, or for each replica if the user asked for all of them
        order = range(groups.num_groups)
        if groups.returns_all:
            order = [groups.find_group(replica) for replica in range(groups.replicas)]  # type: ignore[assignment]
        return torch.stack([self.parameters[parts[group]].detach() for group in order])

    def read_replica_buffers(self) -> Dict[str, List[torch.Tensor]]:
        """Return copies of the buffers that replicas have of their own, by name one for each; none of one replica."""
        names = [name for name in self.buffers[0] if name in self.written] if len(self.buffers) > 1 else []
        return {name: [buffers[name].clone() for buffers in self.buffers] for name in names}

    def write_replica_buffers(self, values: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Write buffers that replicas have of their own, each to its replica."""
        for name, rows in values.items():
            for buffers, row in zip(self.buffers, rows):
                buffers[name].copy_(row)

    def collect_storages(self) -> FrozenSet[int]:
        """Return the addresses of all memory that outlives a call, to recognise results that alias it.

        They are looked up once: a state's tensors are written to, never exchanged.
        """
        if self._storages is None:
            tensors = [*self.parameters.values(), *self.constants]
            for buffers in self.buffers:
                tensors.extend(buffers.values())
            self._storages = frozenset(tensor.untyped_storage().data_ptr() for tensor in tensors)
        return self._storages


def _write_slots(slots: Dict[str, torch.Tensor], others: Mapping[str, torch.Tensor], parameter: torch.Tensor) -> None:
    for name in slots.keys() - others.keys():
        del slots[name]
    for name, value in others.items():
        if name not in slots:
            # compiled updates want a slot in the order of memory that its parameter has
            pattern = parameter if value.shape == parameter.shape else value
            slots[name] = torch.empty_like(pattern, dtype=value.dtype, requires_grad=False)
        slots[name].copy_(value)


def _make_zeros_like(tensor: torch.Tensor, *, device: str) -> torch.Tensor:
    """Make zeros with the shape, type and memory format of `tensor`, which has no values."""
    # a pattern on the meta device would load hundreds of torch's modules; this one takes no pages
    pattern = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return torch.zeros_like(pattern, device=device)  # overlapping strides become ordinary ones
