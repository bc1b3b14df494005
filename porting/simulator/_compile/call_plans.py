"""The plan of a call, made from an executor's options."""

from __future__ import annotations

import dataclasses
from typing import Collection, Optional

from ...capture import StepGraph
from ...capture.graph_flow import is_half
from ...engines.calls.call_plan import CallPlan, GradientExchange, ReplicaGroups
from ..enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType
from ..errors import not_simulated
from ..options import Options
from .process_group import ProcessExchange, require_reachable

__all__ = ["call_plan", "gradient_exchange", "with_mean_of"]

_OUTPUT_MODES = {OutputMode.Final: "final", OutputMode.EveryN: "every_n", OutputMode.All: "all", OutputMode.Sum: "sum"}

# PopART's numbers of them.
_SYNTHETIC_DATA = ("", "zeros", "normal", "uniform")


def call_plan(options: Options, *, training: bool, exchange: Optional[GradientExchange] = None) -> CallPlan:
    """Return how a call under these options is made of micro-batches; `exchange` as from `gradient_exchange`."""
    popart = options._Popart.options
    return CallPlan(
        iterations=options.device_iterations,
        accumulation=options.Training.gradient_accumulation if training else 1,
        replicas=options.replication_factor,
        mean_reduction=options.Training.accumulation_and_replication_reduction_type == ReductionType.Mean,
        output_mode=_OUTPUT_MODES[OutputMode(options.output_mode)],
        output_period=options.output_return_period,
        input_groups=ReplicaGroups(
            replicas=options.replication_factor,
            size=options.input_group_size,
            strided=options.input_cgt == CommGroupType.Orthogonal,
        ),
        processes=options.Distributed.numProcesses if exchange is not None else 1,
        exchange=exchange,
        adapts_loss_scaling=training and bool(popart.get("automaticLossScalingSettings.enabled")),
        rounds_at_random=training and bool(popart.get("enableStochasticRounding")),
        checks_floats=bool(popart.get("enableFloatingPointChecks")),
        synthetic=_SYNTHETIC_DATA[popart.get("syntheticDataMode", 0)],
    )


def with_mean_of(graph: StepGraph, plan: CallPlan, options: Options) -> CallPlan:
    """Return `plan` with the mean over micro-batches taken where the options want it; it matters for halves only."""
    strategy = options.Training.meanAccumulationAndReplicationReductionStrategy
    divides_last = strategy != MeanReductionStrategy.Running and any(map(is_half, graph.graph.nodes))
    return dataclasses.replace(plan, divides_last=True) if divides_last else plan


def gradient_exchange(options: Options, *, grouped: Collection[str] = ()) -> Optional[ProcessExchange]:
    """Return what adds up gradients over the processes of the options; None for a single one.

    The processes meet at the first exchange: while one compiles the others may have to wait for it. Raises
    `poptorch.Error` when there are several and no way to meet, or when torch's process group is another one, and
    `NotSimulatedError` when parameters differ between groups of replicas (`grouped`).
    """
    distributed = options.Distributed
    if distributed.numProcesses == 1:
        return None
    if grouped:
        not_simulated(
            "replicaGrouping",
            f"groups of replicas would have to reach over {distributed.numProcesses} processes, and the simulator has "
            f"them within one (of {', '.join(sorted(grouped))})",
        )
    if options.connection_type != ConnectionType.Never:
        require_reachable(distributed.processId, distributed.numProcesses)
    return ProcessExchange(distributed.processId, distributed.numProcesses)
