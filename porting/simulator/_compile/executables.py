"""The executable of a captured step, and the device's tensors as that executable wants them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.dtypes import NARROWED
from ...engines.calls.call_plan import CallPlan, ReplicaGroups, make_synthetic_inputs
from ...engines.calls.device_state import DeviceState
from ...engines.calls.executable import BuildRequest
from ...engines.calls.guards import make_recordable
from ...engines.calls.step_anchors import StepObserver
from ...engines.tuning.parity import Trial, empty_state
from ...engines.tuning.report import TuningLimits
from ...engines.update.updates import GroupSettings
from ...executables.obtain import Obtained, obtain_executable
from .._executables.executable_cache import find_cache_folder
from .._graph.anchors import OptimizerNames
from .._options.simulator_options import read_extras
from .._weights.replica_parameters import PerReplicaParams
from ..options import Options

__all__ = ["HostSide", "make_executable"]

OptimizerGroups = Tuple[Sequence[GroupSettings], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class HostSide:
    """What only the executor knows of its model: the optimizer that its device will get, and the weights as they are.

    `optimizer_groups` tells for a device's state the settings of the parameter groups and the parts that each updates;
    nothing in inference. `optimizer_names` says what can be anchored of the optimizer. `weights` returns parameters and
    buffers by name, and `per_replica` are the parameters that differ between groups of replicas.
    """

    is_training: bool
    optimizer_type: Any
    optimizer_groups: Callable[[DeviceState], OptimizerGroups]
    optimizer_names: Callable[[], OptimizerNames]
    weights: Callable[[], Mapping[str, torch.Tensor]]
    per_replica: PerReplicaParams


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
) -> Tuple[Obtained, DeviceState]:
    """Return the executable of `graph` that `options` ask for, and the empty state that it runs on.

    `inputs` are those of a whole call; they and the host's weights are what candidates are measured with.
    """
    request = BuildRequest(plan, replica_groups=groups, observer=observer)
    # The settings of the optimizer are told by the parts of parameters, which only a state has.
    state = empty_state(graph, request)
    settings, names = host.optimizer_groups(state)
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
    )
    # an engine may run another graph, whose state has other tensors
    return obtained, state if obtained.graph is graph else empty_state(obtained.graph, request)


def _make_samples(inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Return the inputs of a call as the device gets them; numbers in the place of zeros, which say nothing."""
    detached = [make_recordable(tensor.detach()).contiguous() for tensor in inputs]
    samples = [tensor.to(NARROWED[tensor.dtype]) if tensor.dtype in NARROWED else tensor for tensor in detached]
    if any(sample.is_floating_point() and bool(sample.any()) for sample in samples):
        return samples
    # not negative: a model may take roots or logarithms of its inputs
    return [made.abs() if made.is_floating_point() else made for made in make_synthetic_inputs(samples, "uniform")]
