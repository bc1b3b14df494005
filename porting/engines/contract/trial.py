"""A `Trial` is what engines are run on, to be compared or measured; its weights and inputs are the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, List, Mapping, Sequence

import torch

from ..calls.call_plan import CallPlan
from ..calls.device_state import DeviceState
from ..calls.executable import Executable

__all__ = ["Trial"]


@dataclass(frozen=True)
class Trial:
    """What is run for a comparison or a measurement: the inputs of a call, its plan, and the optimizer's groups.

    `weights` are the values of parameters and buffers by name, which nothing here writes to.
    """

    weights: Mapping[str, torch.Tensor]
    inputs: Sequence[torch.Tensor]
    plan: CallPlan
    groups: Sequence[Any] = ()
    group_names: Sequence[Sequence[str]] = ()
    seed: int = 0

    def prepare(self, state: DeviceState) -> DeviceState:
        """Give an empty state of the graph the weights and the random stream of the trial; return it."""
        state.upload(self.weights)
        state.rng_state = torch.Generator().manual_seed(self.seed).get_state()
        return state

    def run(self, executable: Executable, state: DeviceState) -> List[torch.Tensor]:
        """Run one call."""
        return executable.run(
            state, self.inputs, self.plan, groups=list(self.groups), group_names=[list(n) for n in self.group_names]
        )
