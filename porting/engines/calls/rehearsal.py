"""Rehearse a call on a copy of the device, so that running it changes nothing.

The NaN search, timelines, proofs and the costs of tuning run steps by it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Sequence, Tuple

import torch

from ...capture import StepGraph
from .call_plan import CallPlan
from .device_state import DeviceState

__all__ = ["Rehearsal"]


@dataclass(frozen=True)
class Rehearsal:
    """A call of `graph` that has not run: the device's `state` before it, `inputs` of the device's types, settings.

    `state` is a copy, in the order of memory that `graph` was captured with; `inputs` are copies where the call writes
    to them. With other processes' gradients the call would wait for them: a rehearsal has its own alone.
    """

    graph: StepGraph
    state: DeviceState
    inputs: Tuple[torch.Tensor, ...]
    plan: CallPlan
    groups: Sequence[Any] = ()
    group_names: Sequence[Sequence[str]] = ()

    @classmethod
    def of(
        cls,
        graph: StepGraph,
        state: DeviceState,
        inputs: Sequence[torch.Tensor],
        plan: CallPlan,
        *,
        groups: Sequence[Any],
        group_names: Sequence[Sequence[str]],
    ) -> Rehearsal:
        """Copy `state` and what the call would write to of `inputs`."""
        kept = tuple(tensor.clone() if index in graph.mutated_inputs else tensor for index, tensor in enumerate(inputs))
        plan = dataclasses.replace(plan, exchange=None, checks_floats=False)
        return cls(graph, state.copy_for(graph), kept, plan, groups, [list(names) for names in group_names])

    def copy(self) -> Rehearsal:
        """Return a rehearsal of the same call, for this one is used up by running it."""
        state = self.state.copy_for(self.graph)
        inputs = tuple(
            tensor.clone() if index in self.graph.mutated_inputs else tensor for index, tensor in enumerate(self.inputs)
        )
        return dataclasses.replace(self, state=state, inputs=inputs)
