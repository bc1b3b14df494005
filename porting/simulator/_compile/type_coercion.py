"""The lines about tensors whose type the device narrows: those that enter, those that arise, and those returned."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
from torch import nn

from ...capture import StepGraph
from ...capture.dtypes import NARROWED
from ...host_tensors import host_tensors
from .._logging import cpp_log
from .capture_errors import TYPE_NAMES

__all__ = ["log_coercions"]


def log_coercions(graph: StepGraph, model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    """Log each input and parameter that is narrowed, a buffer of each type, each tensor that arises, and the outputs.

    An output is logged once for each type, because what it loses shows in what the call returns.
    """
    hosts = host_tensors(model)
    parameters = [host.tensor for host in hosts if host.kind == "parameter"]
    buffers = {host.tensor.dtype: host.tensor for host in reversed(hosts) if host.kind == "buffer"}
    for tensor in (*inputs, *parameters, *buffers.values()):
        if tensor.dtype in NARROWED:
            change = _describe_change(tensor.dtype)
            cpp_log("warning", f"[DISPATCHER] Tensor (ptr {tensor.data_ptr():#x}) type coerced {change}")
    for dtype, number in graph.coercions:
        cpp_log("warning", f"[DISPATCHER] Type coerced {_describe_change(dtype)} for tensor id {number}")
    for dtype, name in _find_narrowed_outputs(graph).items():
        cpp_log(
            "warning",
            f"{name}: {dtype} is not supported natively on IPU, loss of range/precision may occur. We will only warn "
            "on the first instance.",
        )


def _find_narrowed_outputs(graph: StepGraph) -> Dict[torch.dtype, str]:
    """Return the first output of each narrowed type, by its name in the graph."""
    entering = (*graph.parameters, *graph.buffers, *graph.inputs)
    types: Dict[str, Tuple[Optional[torch.dtype], str]] = {
        node.name: (info.host_dtype, info.name) for node, info in zip(graph.placeholders, entering)
    }
    returned: Any = graph.graph.output_node().args[0]
    first: Dict[torch.dtype, str] = {}
    for node in returned[: len(graph.outputs)]:
        dtype, name = types.get(node.name, (None, node.name))
        if dtype not in NARROWED:
            # no tensor that enters: one that an operator of the graph made
            dtype = node.meta.get("coerced_from")
        if dtype in NARROWED:
            first.setdefault(dtype, name)
    return first


def _describe_change(dtype: torch.dtype) -> str:
    before, after = (TYPE_NAMES[str(kind).replace("torch.", "")] for kind in (dtype, NARROWED[dtype]))
    return f"from {before} to {after}"
