"""Facts about the tensors of one capture: gradient paths, in-place writes, and what is made of parameters."""

from __future__ import annotations

import copy
import math
from typing import Dict, FrozenSet, Iterable, List, Sequence, Set, Tuple

import torch

from ..device_tensor import DeviceTensor
from ..graph_flow import identify_memory

__all__ = ["TensorFacts"]

_NEVER = math.inf


class TensorFacts:
    """Facts about device tensors and the memory behind them; views share memory, and so what was written to it.

    Each fact has the moment from which on it holds: the number of the call that brought it.
    """

    def __init__(self) -> None:
        self._moment = 0
        self._gradient_tensors: Dict[int, int] = {}
        self._gradient_memory: Dict[int, int] = {}
        # eager PyTorch refuses to write to a leaf through any of its views
        self._leaf_memory: Set[int] = set()
        # by memory: a write through one view is seen through all others
        self._writes: Dict[int, List[Tuple[int, torch.fx.Node]]] = {}
        self._parameter_nodes: Set[torch.fx.Node] = set()
        # facts are found by `id`, which Python gives to another object once a tensor is gone
        self._alive: List[DeviceTensor] = []

    def advance(self) -> None:
        """Go on to the next call."""
        self._moment += 1

    def begin_again(self) -> TensorFacts:
        """Return the same facts at the moment before the first call."""
        again = copy.copy(self)
        again._moment, again._alive, again._gradient_tensors = 0, [], dict(self._gradient_tensors)
        return again

    def add_stand_in(self, tensor: DeviceTensor, like: DeviceTensor) -> None:
        """Keep `tensor`, another handle of which the same is true as of `like`."""
        self._alive.append(tensor)
        if id(like) in self._gradient_tensors:
            self._gradient_tensors[id(tensor)] = self._gradient_tensors[id(like)]

    def add(self, tensor: DeviceTensor) -> None:
        """Keep `tensor` alive, so that its identity stays its own."""
        self._alive.append(tensor)

    def add_parameter(self, tensor: DeviceTensor, *, trainable: bool) -> None:
        """Note that `tensor` is a parameter, where gradient paths begin if it is trainable."""
        self._parameter_nodes.add(tensor.node)
        if trainable:
            self._gradient_tensors[id(tensor)] = self._moment
            self._leaf_memory.add(identify_memory(tensor.fake))

    def tracks_gradient(self, tensor: DeviceTensor) -> bool:
        """Tell whether a gradient path leads from a trainable parameter to `tensor`."""
        if self._gradient_tensors.get(id(tensor), _NEVER) <= self._moment:
            return True
        # to ask for the memory of a tensor takes longer than all else
        memory = self._gradient_memory
        return bool(memory) and memory.get(identify_memory(tensor.fake), _NEVER) <= self._moment

    def node_tracks_gradient(self, node: torch.fx.Node) -> bool:
        """Tell whether a gradient path leads from a trainable parameter to the value of `node`."""
        return any(tensor.node is node and self.tracks_gradient(tensor) for tensor in self._alive)

    def was_written(self, tensor: DeviceTensor) -> bool:
        """Tell whether an operator changed the memory of `tensor` in place."""
        return bool(self.writes_to(tensor))

    def writes_to(self, tensor: DeviceTensor) -> Sequence[torch.fx.Node]:
        """List the operators that changed the memory of `tensor` in place."""
        writes = self._writes.get(identify_memory(tensor.fake), ()) if self._writes else ()
        return [node for moment, node in writes if moment <= self._moment]

    def collect_written_nodes(self) -> FrozenSet[torch.fx.Node]:
        """Return the nodes behind whose values an operator changed the memory in place."""
        return frozenset(tensor.node for tensor in self._alive if self._writes and self.was_written(tensor))

    def is_parameter(self, tensor: DeviceTensor) -> bool:
        """Tell whether `tensor` is a parameter or computed from parameters alone."""
        return tensor.node in self._parameter_nodes

    def refuse_writes_to_leaves(self, written: Iterable[DeviceTensor]) -> None:
        """Raise RuntimeError, in the words of eager PyTorch, for a trainable parameter written to outside `no_grad`."""
        for tensor in written:
            is_leaf = identify_memory(tensor.fake) in self._leaf_memory and self.tracks_gradient(tensor)
            if is_leaf and torch.is_grad_enabled():
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")

    def note_writes(self, written: Iterable[DeviceTensor], by: torch.fx.Node, *, tracked: bool) -> None:
        """Note the in-place writes of the operator `by`; a `tracked` one brings a gradient path into the memory."""
        for tensor in written:
            memory = identify_memory(tensor.fake)
            self._writes.setdefault(memory, []).append((self._moment, by))
            # integers have no gradients, whatever was written into them
            if tracked and tensor.dtype.is_floating_point:
                self._gradient_memory.setdefault(memory, self._moment)

    def note_results(self, results: Iterable[DeviceTensor], operands: Sequence[DeviceTensor], *, tracked: bool) -> None:
        """Note where the results of an operator on `operands` come from; `tracked` says by a gradient path."""
        # a weight that is cast or transposed first is a weight still: a product takes its type from the other operand
        from_parameters = bool(operands) and all(self.is_parameter(tensor) for tensor in operands)
        for tensor in results:
            if tracked and tensor.dtype.is_floating_point:
                self._gradient_tensors.setdefault(id(tensor), self._moment)
            if from_parameters:
                self._parameter_nodes.add(tensor.node)
