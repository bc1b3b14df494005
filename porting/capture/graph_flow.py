"""Follows what the values of a captured graph depend on, directly and through memory that operators write to."""

from __future__ import annotations

import operator
from typing import AbstractSet, Any, FrozenSet, Iterable, List, Set

import torch

from ..torch_insides.operators import SET_GRAD_ENABLED, OpOverload
from ..torch_insides.tensors import identify_storage
from .operator_schema import operator_name, written_arguments
from .step_graph import StepGraph
from .subgraphs import is_random

__all__ = [
    "ValueFlow",
    "constant_outputs",
    "identify_memory",
    "is_half",
    "is_random",
    "output_nodes",
    "tensor_memories",
    "tensor_memory",
    "written_nodes",
]

_NO_MEMORY = -1


def output_nodes(graph: torch.fx.Graph) -> List[torch.fx.Node]:
    """Return the nodes whose values `graph` returns."""
    # the output is the last node of a graph
    returned: Any = next(iter(reversed(graph.nodes))).args[0]
    return list(returned)


def identify_memory(value: torch.Tensor) -> int:
    """Return a number that tensors without values have in common where they share memory."""
    # such tensors have no address, but their storage is an object of its own, which lives as long as they do
    return identify_storage(value.untyped_storage())


def tensor_memory(node: torch.fx.Node) -> int:
    """Identify the memory of a node's value, which views share; -1 for what is no tensor, or a sparse one."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return _NO_MEMORY
    return identify_memory(value)


def tensor_memories(nodes: Iterable[torch.fx.Node]) -> Set[int]:
    """Identify the memory of all values of `nodes` that are tensors."""
    return set(map(tensor_memory, nodes)) - {_NO_MEMORY}


def written_nodes(node: torch.fx.Node) -> List[torch.fx.Node]:
    """Return the nodes whose values `node` changes in place."""
    if not isinstance(node.target, OpOverload):
        return []
    found: List[torch.fx.Node] = []
    # some operators write to lists of tensors
    torch.fx.node.map_arg(written_arguments(node.target, node.args, node.kwargs), found.append)
    return found


def is_half(node: torch.fx.Node) -> bool:
    """Tell whether the value of `node` is a tensor in half precision."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype == torch.float16


class ValueFlow:
    """Follows a graph from its first node on: which values are known when it is compiled, and which have a gradient.

    `visit` takes the nodes in order, those of bodies after the loop or branch that runs them. Constant is what is
    made of compile-time constants alone by operators that draw no random numbers. A gradient flows through what
    autograd would track from the trainable parameters on. An operator that writes passes both on to all views of
    what it writes to.
    """

    def __init__(self, trainable: AbstractSet[str] = frozenset()) -> None:
        """Start before the first node; `trainable` names the parameters that get a gradient."""
        self._trainable = trainable
        self._varying: Set[torch.fx.Node] = set()
        self._varying_memory: Set[int] = set()
        self._tracked: Set[torch.fx.Node] = set()
        self._tracked_memory: Set[int] = set()
        self._is_grad_enabled = True

    @classmethod
    def of(cls, graph: StepGraph) -> ValueFlow:
        """Start before the first node of `graph`."""
        is_training = graph.mode == "training"
        return cls(frozenset(info.name for info in graph.parameters if info.requires_grad and is_training))

    @classmethod
    def follow(cls, graph: StepGraph) -> ValueFlow:
        """Follow the whole of `graph`."""
        flow = cls.of(graph)
        for node in graph.graph.nodes:
            flow.visit(node)
        return flow

    def visit(self, node: torch.fx.Node) -> None:
        """Take in the next node."""
        if node.op == "placeholder":
            if node.meta.get("kind") != "constant":
                _mark_node(node, self._varying, self._varying_memory)
            if node.meta.get("state_name") in self._trainable:
                self._tracked.add(node)
        elif node.target is SET_GRAD_ENABLED:
            self._is_grad_enabled = bool(node.args[0])
        elif node.op == "call_function":
            self._visit_operator(node)

    def _visit_operator(self, node: torch.fx.Node) -> None:
        used, written = node.all_input_nodes, written_nodes(node)
        # what is neither an operator nor the unpacking of one loops, branches, or calls the host
        is_plain = isinstance(node.target, OpOverload) or node.target is operator.getitem
        if not is_plain or is_random(node) or not all(map(self.is_constant, used)):
            for item in (node, *written):
                _mark_node(item, self._varying, self._varying_memory)
        if self._is_grad_enabled and not _ends_gradients(node) and any(map(self.has_gradient, used)):
            self._tracked.add(node)
            for item in written:
                _mark_node(item, self._tracked, self._tracked_memory)

    def is_constant(self, node: torch.fx.Node) -> bool:
        """Tell whether the value of `node` is known when the graph is compiled."""
        return node not in self._varying and tensor_memory(node) not in self._varying_memory

    @property
    def with_gradient(self) -> AbstractSet[torch.fx.Node]:
        """The nodes seen so far that autograd tracks, trainable parameters among them."""
        return self._tracked

    def has_gradient(self, node: torch.fx.Node) -> bool:
        """Tell whether autograd tracks the value of `node`; nothing of it in inference."""
        return node in self._tracked or tensor_memory(node) in self._tracked_memory


def constant_outputs(graph: StepGraph) -> FrozenSet[int]:
    """Return the indices of the outputs that depend on no parameter, buffer, input or random number."""
    flow = ValueFlow.follow(graph)
    returned = output_nodes(graph.graph)[: len(graph.outputs)]
    return frozenset(index for index, node in enumerate(returned) if flow.is_constant(node))


def _ends_gradients(node: torch.fx.Node) -> bool:
    """Tell whether autograd tracks no result of `node`, whatever it gets: truth values, integers, a shape's zeros."""
    values = node.meta.get("val")
    tensors = [value for value in (values if isinstance(values, (list, tuple)) else [values]) if value is not None]
    if tensors and not any(isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point for tensor in tensors):
        return True
    # `detach` ends a gradient path without a region of its own
    name = operator_name(node.target) if isinstance(node.target, OpOverload) else ""
    return name == "detach" or name.endswith("_like") or name.startswith("new_")


def _mark_node(node: torch.fx.Node, nodes: Set[torch.fx.Node], memory: Set[int]) -> None:
    nodes.add(node)
    memory.update(tensor_memories([node]))
