"""Checks of inputs and outputs that are copied while the device computes (overlapped I/O)."""

from __future__ import annotations

from typing import List

import torch

from ....capture import StepGraph
from ....capture.graph_flow import output_nodes
from ..._scopes.executed_operators import operator_label
from ..._scopes.execution_strategies import PipelinedExecution, ShardedExecution
from ...enums import OutputMode, OverlapMode
from ...errors import native_error
from ...options import Options

__all__ = ["check_overlap"]

_MIN_IO_TILES = 32


def check_overlap(graph: StepGraph, options: Options) -> None:
    """Raise `poptorch.Error` where `set_overlap_for_input` or `set_overlap_for_output` is used as it must not be.

    What is marked with `OverlapMode.NoOverlap` is not looked at.
    """
    inputs = _marks(graph, "set_overlap_for_input")
    outputs = _marks(graph, "set_overlap_for_output")
    for mark in inputs:
        _check_input(mark)
    for mark in outputs:
        _check_output(mark)
    if inputs or outputs:
        _check_options(options)


def _marks(graph: StepGraph, name: str) -> List[torch.fx.Node]:
    nodes = [node for node in graph.graph.nodes if node.op == "call_function" and operator_label(node) == name]
    return [node for node in nodes if _requests_overlap(node)]


def _requests_overlap(mark: torch.fx.Node) -> bool:
    mode = mark.args[1] if len(mark.args) > 1 else mark.kwargs.get("mode")
    return mode != OverlapMode.NoOverlap.value


def _check_input(mark: torch.fx.Node) -> None:
    source = mark.all_input_nodes[0]
    if source.op != "placeholder" or source.meta.get("kind") != "input":
        raise native_error("poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model.")
    if len(source.users) > 1:
        raise native_error(
            "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input "
            f"{_number_of(source)} to the model."
        )


def _number_of(source: torch.fx.Node) -> int:
    """Return the place of an input among the inputs, from 0 on: the compiled part has no names of them."""
    inputs = [node for node in source.graph.nodes if node.op == "placeholder" and node.meta.get("kind") == "input"]
    return inputs.index(source)


def _check_output(mark: torch.fx.Node) -> None:
    returned = output_nodes(mark.graph)
    num_times = sum(item is mark for item in returned) if isinstance(returned, (tuple, list)) else 0
    if num_times > 1:
        raise native_error(
            "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
            "returned tensors including those nested in tuples/lists."
        )
    if num_times == 0:
        raise native_error(
            "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
        )


def _check_options(options: Options) -> None:
    strategy = options._execution_strategy
    if isinstance(strategy, PipelinedExecution) and not isinstance(strategy, ShardedExecution):
        raise native_error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
            "switch to poptorch.ShardedExecution."
        )
    if options.TensorLocations.toDict().get("numIOTiles", 0) < _MIN_IO_TILES:
        raise native_error(
            f"No IO tiles allocated. You must allocate at least {_MIN_IO_TILES} IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if options.output_mode not in (OutputMode.All, OutputMode.Sum):
        raise native_error(
            "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
            "poptorch.OutputMode.Sum."
        )
