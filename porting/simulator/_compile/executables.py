"""Build the executable of a captured step, copy tensors to the device's types, and plan the calls.

`compile_model` uses it; sessions describe their host with `describe_host`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Collection, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ...capture import StepGraph
from ...capture.dtypes import device_dtype
from ...capture.graph_flow import is_half
from ...engines.calls.call_plan import CallPlan, GradientExchange, ReplicaGroups, make_synthetic_inputs
from ...engines.calls.device_state import DeviceState
from ...engines.calls.executable import BuildRequest, make_empty_state
from ...engines.calls.group_settings import GroupSettings
from ...engines.calls.guards import make_recordable
from ...engines.calls.step_anchors import StepObserver
from ...engines.contract.limits import TuningLimits
from ...engines.contract.trial import Trial
from ...executables.obtain import Obtained, obtain_executable
from .._executables.executable_cache import find_cache_folder
from .._graph.anchors import OptimizerNames
from .._optimizer.device_optimizer import DeviceOptimizer, name_parameters
from .._options.simulator_options import read_extras
from .._weights.host_weights import fetch_other_owners, read_plain_views
from .._weights.replica_parameters import PerReplicaParams
from .._weights.weight_owners import Owner
from ..enums import CommGroupType, ConnectionType, MeanReductionStrategy, OutputMode, ReductionType
from ..errors import not_simulated
from ..options import Options
from .process_group import ProcessExchange, require_reachable

__all__ = ["HostSide", "describe_host", "make_call_plan", "make_executable", "open_exchange", "place_mean"]

OptimizerGroups = Tuple[Sequence[GroupSettings], Sequence[Sequence[str]]]

_OUTPUT_MODES = {OutputMode.Final: "final", OutputMode.EveryN: "every_n", OutputMode.All: "all", OutputMode.Sum: "sum"}

# PopART's numbers of them.
_SYNTHETIC_DATA = ("", "zeros", "normal", "uniform")


def make_call_plan(options: Options, *, training: bool, exchange: Optional[GradientExchange] = None) -> CallPlan:
    """Return the plan that cuts a call under these options into micro-batches; `exchange` is from `open_exchange`."""
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


def place_mean(graph: StepGraph, plan: CallPlan, options: Options) -> CallPlan:
    """Return `plan` with the mean over micro-batches taken where the options say; it matters for halves only."""
    strategy = options.Training.meanAccumulationAndReplicationReductionStrategy
    divides_last = strategy != MeanReductionStrategy.Running and any(map(is_half, graph.graph.nodes))
    return replace(plan, divides_last=True) if divides_last else plan


def open_exchange(options: Options, *, grouped: Collection[str] = ()) -> Optional[ProcessExchange]:
    """Return the exchange that adds up gradients over the processes of the options; None for a single one.

    The processes meet at the first exchange: while one compiles the others may have to wait for it. Raises
    `poptorch.Error` when there are several that cannot meet, or when torch's process group is another one, and
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


@dataclass(frozen=True)
class HostSide:
    """The executor's knowledge of its model: the optimizer that its device will get, and the present weights.

    `optimizer_groups` returns, for a device's state, the settings of the parameter groups and the parts that each
    updates; empty in inference. `optimizer_names` returns the optimizer's tensors that can be anchored, `weights` the
    parameters and
    buffers by name, and `per_replica` are the parameters that differ between groups of replicas.
    """

    is_training: bool
    optimizer_type: Any
    optimizer_groups: Callable[[DeviceState], OptimizerGroups]
    optimizer_names: Callable[[], OptimizerNames]
    weights: Callable[[], Mapping[str, torch.Tensor]]
    per_replica: PerReplicaParams


def describe_host(
    user_model: nn.Module, owner: Optional[Owner], optimizer: DeviceOptimizer, per_replica: PerReplicaParams
) -> HostSide:
    """Return the optimizer and the weights of `user_model`, which are read only on request.

    `owner` is a training executor's hold on the model; without one it is inference.
    """

    def read_weights() -> Mapping[str, torch.Tensor]:
        fetch_other_owners(user_model, owner)
        return read_plain_views(user_model)

    def read_groups(state: DeviceState) -> Any:
        return optimizer.list_groups(state, name_parameters(user_model)) if owner is not None else ((), ())

    return HostSide(
        is_training=owner is not None,
        optimizer_type=optimizer.settings.get("optimizer_type"),
        optimizer_groups=read_groups,
        optimizer_names=lambda: optimizer.list_names(user_model),
        weights=read_weights,
        per_replica=per_replica,
    )


def make_executable(
    graph: StepGraph,
    plan: CallPlan,
    options: Options,
    host: HostSide,
    *,
    inputs: Sequence[torch.Tensor],
    groups: Mapping[str, ReplicaGroups],
    observer: Optional[StepObserver],
    model: str,
    waits: bool,
) -> Tuple[Obtained, DeviceState]:
    """Return the executable of `graph` that `options` ask for, to be measured with `inputs`, and its empty state.

    Unless it `waits`, nothing is measured now.
    """
    request = BuildRequest(plan, replica_groups=groups, observer=observer)
    # The settings of the optimizer are named after the parts of parameters, which only a state has.
    settings, names = host.optimizer_groups(make_empty_state(graph, request, has_memory=False))
    request = replace(request, groups=tuple(settings), group_names=tuple(map(tuple, names)))

    # called only if engines are measured: fetching the weights and a batch of samples takes time and memory
    def make_trial() -> Trial:
        seed = options.random_seed if options.exists("random_seed") else 0
        samples = _make_samples(inputs)
        return Trial(host.weights(), samples, plan, request.groups, request.group_names, seed=seed)

    extras = read_extras(options)
    obtained = obtain_executable(
        graph,
        request,
        engine=extras.engine,
        cache_dir=find_cache_folder(options),
        make_trial=make_trial,
        limits=TuningLimits(seconds=extras.tuning_seconds),
        model=model,
        report=extras.report,
        waits=waits and extras.waits,
    )
    # only now: an engine may run another graph, whose state has other tensors
    return obtained, make_empty_state(obtained.graph, request)


def _make_samples(inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Return the inputs of a call as the device gets them; random numbers replace zeros, which prove nothing."""
    detached = [make_recordable(tensor.detach()).contiguous() for tensor in inputs]
    samples = [tensor.to(device_dtype(tensor.dtype)) for tensor in detached]
    if any(sample.is_floating_point() and bool(sample.any()) for sample in samples):
        return samples
    # not negative: a model may take roots or logarithms of its inputs
    return [made.abs() if made.is_floating_point() else made for made in make_synthetic_inputs(samples, "uniform")]
