"""Hold a captured step as an ATen graph with the user's lines, and say what its inputs and outputs are.

A capture returns it, and engines run it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, FrozenSet, List, Optional, Tuple

import torch

from ..diagnostics import Finding, Place
from ..torch_insides.operators import OpOverload
from .plain_values import dtype_name
from .subgraphs import is_random

__all__ = ["MUTATED", "OperatorNode", "StepGraph", "TensorInfo"]

MUTATED = ("mutated_buffers", "mutated_parameters", "mutated_inputs")
"""The fields of a graph that name what it writes to."""


@dataclass(frozen=True)
class TensorInfo:
    """A tensor that enters the graph; `dtype` is its type on the device, `host_dtype` the user's."""

    name: str
    kind: str
    shape: Tuple[int, ...]
    dtype: torch.dtype
    host_dtype: torch.dtype
    requires_grad: bool = False
    aliases: Tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorNode:
    """One operator of the graph: its name, the shapes and types of its results, and where it comes from."""

    name: str
    operator: str
    shapes: Tuple[Tuple[int, ...], ...]
    dtypes: Tuple[torch.dtype, ...]
    module_path: str
    place: Optional[Place]
    node: torch.fx.Node = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class StepGraph:
    """A `forward`, and in training the loss it ends in, as a static graph of ATen operators.

    The placeholders of `graph` are, in this order: `parameters`, `buffers`, `inputs`, `constants`. Its output is the
    list of the tensors that `forward` returned (`output_structure` says how they were nested) followed by the final
    loss when there is one. `coercions` are the wider types of tensors that arose in `forward`, each with a number.
    Operators act in place where the user's code did; replaying the graph literally on the tensors of a device gives the
    device's behaviour.
    """

    graph: torch.fx.Graph
    parameters: Tuple[TensorInfo, ...]
    buffers: Tuple[TensorInfo, ...]
    constants: Tuple[TensorInfo, ...]
    constant_values: Tuple[torch.Tensor, ...]
    inputs: Tuple[TensorInfo, ...]
    output_structure: Any
    outputs: Tuple[TensorInfo, ...]
    mode: str
    has_loss: bool
    loss_has_gradient: bool
    num_losses: int
    mutated_buffers: FrozenSet[str]
    mutated_parameters: FrozenSet[str]
    mutated_inputs: FrozenSet[int]
    host_outputs: int
    findings: Tuple[Finding, ...]
    coercions: Tuple[Tuple[torch.dtype, int], ...] = ()

    @property
    def entering(self) -> List[TensorInfo]:
        """What enters the graph, in the order of its arguments."""
        return [*self.parameters, *self.buffers, *self.inputs, *self.constants]

    @property
    def placeholders(self) -> List[torch.fx.Node]:
        """The nodes of what enters the graph, in the order of its arguments."""
        return [node for node in self.graph.nodes if node.op == "placeholder"]

    @property
    def operators(self) -> List[OperatorNode]:
        """The operators in the order they run, without placeholders and the unpacking of tuples.

        A loop or branch is one of them; the operators of its bodies are in the graphs that `bodies_of` its node lists.
        """
        # loops, branches and calls of the host are functions, and bear a name of their own
        kind, nodes = OpOverload, self.graph.nodes
        return [_describe_operator(node) for node in nodes if isinstance(node.target, kind) or "operator" in node.meta]

    @property
    def is_random(self) -> bool:
        """Whether an operator draws random numbers."""
        return any(map(is_random, self.graph.nodes))

    def __str__(self) -> str:
        """One line for each operator: name, operator, shape, module path, place."""
        lines = [f"{info.kind:10} {info.name}: {_format_type(info.shape, info.dtype)}" for info in self.entering]
        for op in self.operators:
            results = ", ".join(_format_type(shape, dtype) for shape, dtype in zip(op.shapes, op.dtypes))
            lines.append(f"{op.name} = {op.operator} -> {results}  [{op.module_path or 'forward'}]  {op.place or ''}")
        return "\n".join(lines)


def _describe_operator(node: torch.fx.Node) -> OperatorNode:
    # an operator with several results has no value of its own: its users unpack them
    values = [node.meta["val"]] if "val" in node.meta else [user.meta.get("val") for user in node.users]
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return OperatorNode(
        name=node.name,
        operator=node.meta.get("operator", str(node.target)),
        shapes=tuple(tuple(tensor.shape) for tensor in tensors),
        dtypes=tuple(tensor.dtype for tensor in tensors),
        module_path=node.meta.get("module_path", ""),
        place=node.meta.get("place"),
        node=node,
    )


def _format_type(shape: Tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{dtype_name(dtype)}[{', '.join(map(str, shape))}]"
