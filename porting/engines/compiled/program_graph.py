"""A program under construction: graphs traced once and written out as often as the program runs them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, Sequence, Set

import torch

from ...capture.operator_schema import written_arguments
from .call_layout import TensorSpec
from .programs import Program

__all__ = ["ProgramGraph"]


class ProgramGraph:
    """A flat graph of ATen operators; what is called becomes a node, and so do the nodes of what is inlined.

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
        images: Dict[torch.fx.Node, torch.fx.Node] = {}
        given = iter(arguments)
        for node in graph.nodes:
            if node.op == "placeholder":
                images[node] = next(given)
            elif node.op == "output":
                returned: Any = node.args[0]
                return [images[value] for value in returned]
            else:
                images[node] = self._graph.node_copy(node, images.__getitem__)
                # what was known of a node holds for the graph that it comes from
                images[node].meta = {}
        raise AssertionError("a graph ends in an output")

    def finish(self, role: str, results: Sequence[torch.fx.Node], *, has_halves: bool) -> Program:
        """End with the tuple of `results`; what nothing needs is left out, arguments too."""
        self._graph.output(tuple(results))
        # Writes in place count as used, so that only what nobody reads goes.
        self._graph.eliminate_dead_code()
        specs, nodes = [], []
        for spec, node in zip(self._specs, self.arguments.values()):
            if node.users:
                specs.append(spec)
                nodes.append(node)
            else:
                self._graph.erase_node(node)
        written = _find_written_memory(self._graph)
        return Program(
            role=role,
            module=torch.fx.GraphModule(torch.nn.Module(), self._graph),
            arguments=tuple(specs),
            written=tuple(index for index, node in enumerate(nodes) if node in written),
            num_results=len(results),
            has_halves=has_halves,
        )


def _find_written_memory(graph: torch.fx.Graph) -> Set[torch.fx.Node]:
    """Return the nodes whose memory an operator writes to, through views or not."""
    origins: Dict[torch.fx.Node, torch.fx.Node] = {}
    written: Set[torch.fx.Node] = set()
    for node in graph.nodes:
        origins[node] = node
        target: Any = node.target
        if isinstance(target, torch._ops.OpOverload):
            targets = written_arguments(target, node.args, node.kwargs)
            written.update(origins[item] for item in targets if isinstance(item, torch.fx.Node))
            # A result that the schema calls an alias is a view of the first argument.
            returns = target._schema.returns
            if returns and returns[0].alias_info is not None and node.all_input_nodes:
                origins[node] = origins[node.all_input_nodes[0]]
        elif node.op == "call_function" and node.all_input_nodes:
            origins[node] = origins[node.all_input_nodes[0]]  # one of several results
    return written
