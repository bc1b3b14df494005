"""The memory check of a step that is compiled: a close look only where an upper bound does not fit.

The bound comes from the shapes in the graph alone, which costs almost no time. It is several times what the step will
need: a step whose bound fits needs no closer look.
"""

from __future__ import annotations

import math
from typing import Any, Optional

import torch
from torch.utils._pytree import tree_leaves

from ..capture import StepGraph
from ..capture.subgraphs import Body
from ..diagnostics import Finding, PortingError
from ..options import PortOptions
from ..targets import DEFAULT, find_target
from .memory_look import FITS, count_bytes_per_weight, make_report
from .memory_model import count_code_bytes
from .remedies import find_first_remedy
from .step_memory import count_device_bytes
from .step_walk import number_stages, walk_step

__all__ = ["bound_bytes", "note_memory"]

# what is kept, its gradient, and a product's copies of its operands
_COPIES = 3
# gates and states of recurrent layers, for each value that comes out of them
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
_RECURRENT_COPIES = 12


def note_memory(graph: StepGraph, options: PortOptions, optimizer: Any, *, target: str = DEFAULT) -> Optional[Finding]:
    """Return M001 with the first remedy if the captured training step would not fit into an IPU of `target`, or None.

    None as well for a step whose memory cannot be predicted, such as one with a branch.
    """
    found = find_target(target)
    bound = bound_bytes(graph, num_stages=len(options.stage_ipus), bytes_per_weight=count_bytes_per_weight(optimizer))
    if bound <= FITS * found.memory_bytes:
        return None
    nodes = list(graph.graph.nodes)
    for node, number in zip(nodes, number_stages(node.meta.get("ipu") for node in nodes)):
        node.meta["pipeline_stage"] = number
    try:
        step = walk_step(graph, next((info.shape[0] for info in graph.inputs if info.shape), 1))
    except PortingError as error:
        if error.code != "M002":
            raise
        return None
    return make_report(step, options, optimizer, found, find_first_remedy).finding


def bound_bytes(graph: StepGraph, *, num_stages: int, bytes_per_weight: int) -> float:
    """Return a bound of the bytes on one IPU; infinite for loops and branches, whose shapes do not tell.

    `bytes_per_weight` are those of its gradient and of the optimizer's state. A stage of a pipeline keeps values of up
    to two micro-batches for each of the `num_stages`.
    """
    weights = sum(count_device_bytes(info.shape, info.dtype) for info in (*graph.parameters, *graph.buffers))
    num_weights = sum(math.prod(info.shape) for info in graph.parameters)
    values, num_operators = 0, 0
    for node in graph.graph.nodes:
        if node.op != "call_function":
            continue
        if any(isinstance(argument, Body) for argument in node.args):
            return math.inf
        num_operators += 1
        values += _measure_operator(node)
    under_way = 2 * num_stages if num_stages > 1 else 1
    return 2 * weights + num_weights * bytes_per_weight + _COPIES * values * under_way + count_code_bytes(num_operators)


def _measure_operator(node: torch.fx.Node) -> int:
    """Return the bytes that an operator reads, makes and may keep for its gradient."""
    operands = [used for used in node.all_input_nodes if used.meta.get("kind") not in ("parameter", "buffer")]
    leaves = tree_leaves([value.meta.get("val") for value in (node, *operands)])
    num_bytes = sum(count_device_bytes(leaf.shape, leaf.dtype) for leaf in leaves if isinstance(leaf, torch.Tensor))
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name in _RECURRENT:
        return _RECURRENT_COPIES * num_bytes
    if name == "scaled_dot_product_attention":
        query, key = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
        # the matrix of scores, which a kernel of the CPU never has as a whole
        return num_bytes + 4 * count_device_bytes((*query.shape[:-1], key.shape[-2]), query.dtype)
    return num_bytes
