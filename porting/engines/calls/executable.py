"""The product of every engine, an `Executable`, and the order for one: a `BuildRequest` with `Choice` and settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, List, Mapping, Optional, Protocol, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...diagnostics import Finding
from .call_plan import CallPlan, ReplicaGroups
from .device_state import DeviceState
from .group_settings import GroupSettings
from .step_anchors import StepObserver

__all__ = ["BuildRequest", "Choice", "Executable"]


@dataclass(frozen=True)
class Choice:
    """One way to run the same step: an engine and what it may choose without changing the mathematics.

    `channels_last` lays out images and convolution weights with the channels innermost. `fused_update` makes torch's
    fused optimizer kernels update the weights: they round differently from the plain ones, and leave less to compile.
    A program of the compiled engines is `steps_per_run` device iterations, if it updates. At most
    `micro_batches_at_once` run as one larger batch, None for as many as pay in general. `num_threads` are the threads
    of a call, its libraries' too, None for torch's number.

    >>> Choice("aot", channels_last=True).label
    'aot, channels-last'
    """

    engine: str = "replay"
    channels_last: bool = False
    fused_update: bool = False
    steps_per_run: int = 1
    micro_batches_at_once: Optional[int] = None
    num_threads: Optional[int] = None

    @property
    def label(self) -> str:
        """The choice in a few words, as reports name it."""
        parts = [self.engine]
        parts += ["channels-last"] if self.channels_last else []
        parts += ["fused update"] if self.fused_update else []
        parts += [f"{self.steps_per_run} steps a run"] if self.steps_per_run > 1 else []
        at_once = self.micro_batches_at_once
        parts += [f"{at_once} micro-batches at once"] if at_once is not None else []
        parts += [f"{self.num_threads} thread(s)"] if self.num_threads is not None else []
        return ", ".join(parts)


@dataclass(frozen=True)
class BuildRequest:
    """What an executable is built for, besides its graph.

    `groups` are the settings of the optimizer's parameter groups and `group_names` the parameters of each, both empty
    in inference; numbers such as the learning rate may be others in each call. `replica_groups` names the parameters
    that differ between groups of replicas. `observer` looks at single training steps, which only the replay engine can
    show it. `report` gets what an executable finds out in its calls; without it that goes to the log.
    """

    plan: CallPlan
    groups: Tuple[GroupSettings, ...] = ()
    group_names: Tuple[Tuple[str, ...], ...] = ()
    choice: Choice = Choice()
    replica_groups: Mapping[str, ReplicaGroups] = field(default_factory=dict)
    observer: Optional[StepObserver] = None
    # not a part of what is built: the same request with another listener has the same executable
    report: Optional[Callable[[Finding], None]] = field(default=None, compare=False)


class Executable(Protocol):
    """A step that can run: `run` has the semantics of `ReplayExecutable.run`, whatever the engine."""

    name: str

    def run(
        self,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        plan: CallPlan,
        *,
        groups: Sequence[GroupSettings] = (),
        group_names: Sequence[Sequence[str]] = (),
    ) -> List[torch.Tensor]:
        """Run one device call on a full batch and update `state`."""


def make_empty_state(graph: StepGraph, request: BuildRequest, *, has_memory: bool = True) -> DeviceState:
    """Make the empty state that an executable of `graph` for `request` runs on; without memory nothing can."""
    state = DeviceState.for_graph(
        graph, replicas=request.plan.replicas, groups=request.replica_groups, has_memory=has_memory
    )
    if request.plan.adapts_loss_scaling:
        state.loss_scale_factor = torch.ones(())
    return state
