"""How one device call is made of micro-batches: which rows each takes, and which results come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, List, NamedTuple, Optional, Sequence

import torch

__all__ = ["CallPlan", "OutputCollector", "Turn"]


class Turn(NamedTuple):
    """One micro-batch of a call: its `number` among those of its `replica`, its `position` among all of the call."""

    number: int
    replica: int
    position: int


@dataclass(frozen=True)
class CallPlan:
    """Device iterations x accumulation x replicas, how gradients are reduced, and the output mode of a call.

    `output_mode` is "all", "final", "sum" or "every_n"; with "every_n" each `output_period`-th result is kept.
    `mean_reduction` divides the gradient of a step by accumulation x replicas.
    """

    iterations: int = 1
    accumulation: int = 1
    replicas: int = 1
    mean_reduction: bool = True
    output_mode: str = "final"
    output_period: int = 1

    @property
    def num_turns(self) -> int:
        """Micro-batches of one call over all replicas.

        >>> CallPlan(iterations=2, accumulation=3, replicas=4).num_turns
        24
        """
        return self.iterations * self.accumulation * self.replicas

    @property
    def gradient_scale(self) -> float:
        """Factor of each micro-batch's gradient in the gradient of its step."""
        return 1.0 / (self.accumulation * self.replicas) if self.mean_reduction else 1.0

    def steps(self) -> Iterator[List[Turn]]:
        """Yield the turns of each optimizer step; rows are laid out as [iteration][accumulation][replica]."""
        for iteration in range(self.iterations):
            turns: List[Turn] = []
            for accumulation in range(self.accumulation):
                number = iteration * self.accumulation + accumulation
                turns.extend(
                    Turn(number, replica, number * self.replicas + replica) for replica in range(self.replicas)
                )
            yield turns

    def keeps(self, turn: Turn) -> bool:
        """Tell whether the results of `turn` come back to the host."""
        if self.output_mode == "final":
            return turn.number == self.iterations * self.accumulation - 1
        if self.output_mode == "every_n":
            return (turn.number + 1) % self.output_period == 0
        return True


class OutputCollector:
    """Gathers the results of a call's micro-batches as the output mode asks."""

    def __init__(self, plan: CallPlan) -> None:
        """Start an empty collection for one call of `plan`."""
        self._plan = plan
        self._kept: List[Sequence[torch.Tensor]] = []
        self._sums: List[Optional[List[torch.Tensor]]] = [None] * plan.replicas

    def add(self, turn: Turn, results: Sequence[torch.Tensor]) -> None:
        """Take the results of one micro-batch; they must not change afterwards."""
        if self._plan.output_mode == "sum":
            sums = self._sums[turn.replica]
            self._sums[turn.replica] = (
                list(results) if sums is None else [total + result for total, result in zip(sums, results)]
            )
        elif self._plan.keeps(turn):
            self._kept.append(results)

    def combine(self) -> List[torch.Tensor]:
        """Return one tensor for each result: micro-batches joined along dimension 0, scalars stacked.

        A single micro-batch keeps its shape, so that a scalar loss stays a scalar.
        """
        kept = [sums for sums in self._sums if sums is not None] if self._plan.output_mode == "sum" else self._kept
        if len(kept) == 1:
            return list(kept[0])
        return [_join(parts) for parts in zip(*kept)]


def _join(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(parts)) if parts[0].dim() == 0 else torch.cat(list(parts))
