"""An upper bound of a step's memory, from the shapes in its graph alone, which costs almost no time.

It is several times what the step will need: a step whose bound fits needs no closer look.
"""

from __future__ import annotations

import math
from typing import Any, Iterator, Tuple

import torch

from ..capture import StepGraph
from ..capture.subgraphs import Body
from .memory_model import count_code_bytes
from .step_memory import count_device_bytes

__all__ = ["bound_bytes"]

# what is kept, its gradient, and a product's copies of its operands
_COPIES = 3
# gates and states of recurrent layers, for each value that comes out of them
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
_RECURRENT_COPIES = 12


def bound_bytes(graph: StepGraph, *, num_stages: int, bytes_per_weight: int) -> float:
    """Return a bound of the bytes on one IPU; infinite for loops and branches, whose shapes do not tell.

    `bytes_per_weight` are those of its gradient and of the optimizer's state. A stage of a pipeline keeps values of up
    to two micro-batches for each of the `num_stages`.
    """
    weights = sum(_count_bytes(info.shape, info.dtype) for info in (*graph.parameters, *graph.buffers))
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
    made = sum(_count_bytes(value.shape, value.dtype) for value in _list_tensors(node.meta.get("val")))
    operands = [used for used in node.all_input_nodes if used.meta.get("kind") not in ("parameter", "buffer")]
    read = sum(
        _count_bytes(value.shape, value.dtype) for used in operands for value in _list_tensors(used.meta.get("val"))
    )
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name in _RECURRENT:
        return _RECURRENT_COPIES * (made + read)
    if name == "scaled_dot_product_attention":
        return made + read + 4 * _measure_scores(node)
    return made + read


def _measure_scores(node: torch.fx.Node) -> int:
    query, key = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
    return _count_bytes((*query.shape[:-1], key.shape[-2]), query.dtype)


def _list_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _list_tensors(item)


def _count_bytes(shape: Tuple[int, ...], dtype: torch.dtype) -> int:
    return count_device_bytes(math.prod(shape) * dtype.itemsize, dtype)
