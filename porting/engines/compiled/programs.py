"""Describe programs for a compiler, flat graphs of ATen operators over the tensors of a device.

The step's programs are put together of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import torch

from ...torch_insides.operators import OpOverload
from .call_layout import CallLayout, TensorSpec

__all__ = ["Program", "ProgramGraph", "Programs", "Runner", "call_operator", "count_operators"]

Runner = Callable[[Sequence[torch.Tensor]], List[torch.Tensor]]


def count_operators(graph: torch.fx.Graph) -> int:
    """Return how many operators `graph` has; views count too, the unpacking of tuples does not."""
    return sum(isinstance(node.target, OpOverload) for node in graph.nodes)


def call_operator(graph: torch.fx.Graph, target: Callable[..., Any], *arguments: Any) -> torch.fx.Node:
    """Write a call at the insertion point of a graph whose nodes have values, in `meta["val"]`; return its node."""
    node = graph.call_function(target, arguments)
    node.meta["val"] = target(*torch.fx.node.map_arg(arguments, lambda used: used.meta["val"]))
    return node


@dataclass(frozen=True)
class Program:
    """One program: a graph of ATen operators that returns a tuple of `num_results` tensors.

    `arguments` describe what it gets, some of which it may write to in place. `has_halves` says that it computes in
    half precision and must round where the graph does.
    """

    role: str
    module: torch.fx.GraphModule
    arguments: Tuple[TensorSpec, ...]
    num_results: int
    has_halves: bool = False

    @property
    def num_operators(self) -> int:
        """How many operators the program has."""
        return count_operators(self.module.graph)


class Programs(NamedTuple):
    """The programs of one step by their roles ("step", or "accumulate" and "update", or "forward"), and their use."""

    by_role: Mapping[str, Program]
    layout: CallLayout


class ProgramGraph:
    """A program under construction; what is called becomes a node, and so do the nodes of what is inlined.

    Copying nodes costs microseconds where tracing costs hundreds, so that many optimizer steps are cheap to write out.
    """

    def __init__(self, arguments: Mapping[str, torch.Tensor]) -> None:
        """Start with the arguments of the program: tensors without values by the names of `call_layout`."""
        self._graph = torch.fx.Graph()
        self._specs = [TensorSpec.of(tensor, name=name) for name, tensor in arguments.items()]
        self.arguments: Dict[str, torch.fx.Node] = {
            name: self._graph.placeholder(f"argument_{index}") for index, name in enumerate(arguments)
        }

    def call(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.fx.Node:
        """Write a call of an operator; nodes stand for their values."""
        return self._graph.call_function(target, args, kwargs)

    def inline(self, graph: torch.fx.Graph, arguments: Sequence[torch.fx.Node]) -> List[torch.fx.Node]:
        """Write out all operators of `graph` on `arguments`; return the nodes of its outputs."""
        *nodes, output = graph.nodes
        images: Dict[torch.fx.Node, torch.fx.Node] = dict(zip(nodes, arguments))
        for node in nodes[len(arguments) :]:
            images[node] = self._graph.node_copy(node, images.__getitem__)
            # what was known of a node holds for the graph that it comes from
            images[node].meta = {}
        returned: Any = output.args[0]
        return [images[value] for value in returned]

    def finish(self, role: str, results: Sequence[torch.fx.Node], *, has_halves: bool) -> Program:
        """End with the tuple of `results`; what nothing needs is left out, arguments too."""
        self._graph.output(tuple(results))
        # Writes in place count as used, so that only what nobody reads goes.
        self._graph.eliminate_dead_code()
        used = [bool(node.users) for node in self.arguments.values()]
        for node, is_used in zip(self.arguments.values(), used):
            if not is_used:
                self._graph.erase_node(node)
        return Program(
            role=role,
            module=torch.fx.GraphModule(torch.nn.Module(), self._graph),
            arguments=tuple(spec for spec, is_used in zip(self._specs, used) if is_used),
            num_results=len(results),
            has_halves=has_halves,
        )
