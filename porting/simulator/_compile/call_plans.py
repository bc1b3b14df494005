"""The plan of a call, made from options, and what the call hands back to the user."""

from __future__ import annotations

import dataclasses
from typing import Any, Collection, Optional, Sequence

import torch

from ...capture import StepGraph
from ...capture.device_tensor import DeviceTensor
from ...engines.calls.call_plan import CallPlan, GradientExchange, ReplicaGroups
from ...structure import rebuild
from ..enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType
from ..errors import createPoptorchError, not_simulated
from ..options import Options
from .process_group import ProcessExchange, require_reachable

__all__ = ["call_plan", "gradient_exchange", "hand_back", "with_mean_of"]

_OUTPUT_MODES = {
    OutputMode.Final: "final",
    OutputMode.EveryN: "every_n",
    OutputMode.All: "all",
    OutputMode.Sum: "sum",
}

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
    values = (node.meta.get("val") for node in graph.graph.nodes)
    has_halves = any(isinstance(value, torch.Tensor) and value.dtype == torch.float16 for value in values)
    is_running = strategy == MeanReductionStrategy.Running
    return plan if is_running or not has_halves else dataclasses.replace(plan, divides_last=True)


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


def hand_back(graph: StepGraph, inputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> Any:
    """Update the caller's `inputs` and return the outputs nested as `forward` returned them.

    `results` are the outputs of `graph`, then the inputs that it wrote into. What is no tensor of the device is
    returned as it was when `forward` was traced.
    """
    outputs, written = results[: len(graph.outputs)], results[len(graph.outputs) :]
    for index, value in zip(sorted(graph.mutated_inputs), written):
        # PopTorch updates what it gave the device, which is a copy if the input was not contiguous.
        if inputs[index].is_contiguous():
            with torch.no_grad():
                inputs[index].copy_(value)
    for tensor in outputs:
        tensor.backward = _refuse_backward  # type: ignore[method-assign]
    return rebuild(graph.output_structure, outputs, replaces=lambda leaf: isinstance(leaf, DeviceTensor))


def _refuse_backward(*_args: Any, **_kwargs: Any) -> None:
    raise createPoptorchError(
        "backward() cannot be called explicitly on outputs of a PopTorch model. If you're using a trainingModel, the "
        "backwards pass is performed automatically when invoking the model. If you're using an inferenceModel, you "
        "should use a trainingModel instead."
    )
