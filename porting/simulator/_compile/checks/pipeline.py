"""Checks of a traced model's blocks, pipeline, number of IPUs and `MultiConv`s."""

from __future__ import annotations

from typing import Iterator, Sequence

import torch

from ....capture import StepGraph
from ..._device.device_pool import reserved_ipus
from ..._device.device_target import counts_as_hardware
from ..._scopes.executed_operators import executed_operators, is_convolution
from ..._scopes.execution_strategies import ParallelPhasedExecution, PipelinedExecution, ShardedExecution
from ..._scopes.graph_scopes import GraphScopes
from ...errors import native_error
from ...options import Options

__all__ = ["check_pipeline", "num_ipus_of_replica", "num_pipeline_stages"]

_MAX_IPUS = 64


def check_pipeline(graph: StepGraph, scopes: GraphScopes, options: Options) -> int:
    """Return how many IPUs one replica needs.

    Raises `poptorch.Error` for the first thing about blocks, `MultiConv`s and IPUs that a device would refuse. Whether
    so many IPUs are free is found out when a device is taken.
    """
    operators = executed_operators(graph.graph, with_bodies=True)
    _check_multi_convs(operators, scopes)
    _check_blocks(operators)
    _check_phases(operators, options)
    num_ipus = num_ipus_of_replica(operators)
    _check_num_ipus(num_ipus * options.replication_factor, options)
    _check_pipeline_size(operators, options, is_training=graph.mode == "training")
    return num_ipus


def num_pipeline_stages(operators: Sequence[torch.fx.Node]) -> int:
    """Return how many stages the forward pass has: operators that follow each other on one IPU are one stage.

    A pipeline begins on IPU 0, where the inputs arrive, also if the first block is on another one.
    """
    ipus = [0, *(node.meta["ipu"] for node in _placed(operators))]
    return 1 + sum(before != after for before, after in zip(ipus, ipus[1:]))


def num_ipus_of_replica(operators: Sequence[torch.fx.Node]) -> int:
    """Return how many IPUs one replica uses: all up to the one with the largest number."""
    return 1 + max((node.meta["ipu"] for node in _placed(operators)), default=0)


def _placed(operators: Sequence[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """Yield the operators that were recorded in a block; the compiler's own follow those around them."""
    return (node for node in operators if node.meta.get("ipu") is not None)


def _check_multi_convs(operators: Sequence[torch.fx.Node], scopes: GraphScopes) -> None:
    if scopes.has_nested_multi_conv:
        raise native_error("Nested poptorch.MultiConv is not supported.")
    filled = {
        node.meta["multi_conv"]["number"] for node in operators if "multi_conv" in node.meta and is_convolution(node)
    }
    if any(multi_conv["number"] not in filled for multi_conv in scopes.multi_convs):
        raise native_error("Unexpected end_multi_conv, is the IR malformed?")


def _check_blocks(operators: Sequence[torch.fx.Node]) -> None:
    for node in operators:
        if node.meta.get("block", "") is None:
            place = node.meta.get("place")
            where = f" ({node.target} at {place})" if place else ""
            raise native_error(f"No active Block, all the ops must belong to a Block{where}")


def _check_phases(operators: Sequence[torch.fx.Node], options: Options) -> None:
    if not isinstance(options._execution_strategy, ParallelPhasedExecution):
        return
    if any(node.meta["phase"] % 2 != node.meta["ipu"] % 2 for node in _placed(operators)):
        raise native_error(
            "When phases are executed in parallel: even phases must run on even IPUs and odd phases on odd IPUs"
        )


def _check_pipeline_size(operators: Sequence[torch.fx.Node], options: Options, *, is_training: bool) -> None:
    strategy = options._execution_strategy
    if not isinstance(strategy, PipelinedExecution) or isinstance(strategy, ShardedExecution):
        return
    num_stages = num_pipeline_stages(operators)
    if num_stages == 1:
        return
    if not is_training and options.device_iterations < num_stages:
        raise native_error(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({num_stages}) when using poptorch.PipelinedExecution."
        )
    num_training_stages = 2 * num_stages - 1
    if is_training and options.Training.gradient_accumulation < num_training_stages:
        raise native_error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            f"stages ({num_training_stages}) when using poptorch.PipelinedExecution. Please note that a model with "
            f"{num_stages} pipeline stages in PopTorch will have an additional {num_stages - 1} stages when training."
        )


def _check_num_ipus(num_ipus: int, options: Options) -> None:
    if num_ipus > _MAX_IPUS:
        raise native_error(
            f"Too many IPUs requested ({num_ipus}). Experiments that need more than {_MAX_IPUS} IPUs require "
            "distributed execution."
        )
    if counts_as_hardware(options):
        reserved_ipus(num_ipus, may_round=options.auto_round_num_ipus)
