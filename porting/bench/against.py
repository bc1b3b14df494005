"""The port against several ways to train without it: a speed-up over the best of them is one that counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Mapping, Optional, Sequence

from .turns import Ratios, Spread, Turns, divide_times

__all__ = ["Against", "EagerWay", "sum_up_ways"]


@dataclass(frozen=True)
class EagerWay:
    """One way to train without the port; times are those of one step, the speed-up is its time over the port's.

    None with a `reason` where it cannot train this model.
    """

    step_seconds: Optional[Spread] = None
    cpu_seconds: Optional[float] = None
    speed_up: Optional[Ratios] = None
    reason: str = ""


@dataclass(frozen=True)
class Against:
    """The ways by name, and the `best` of them by the clock, with the speed-up over it; None where there is none."""

    ways: Mapping[str, EagerWay] = field(default_factory=dict)
    best: Optional[str] = None
    speed_up: Optional[Ratios] = None


def sum_up_ways(
    turns: Mapping[str, Turns], order: Sequence[str], *, reasons: Mapping[str, str], steps_per_call: int
) -> Against:
    """Make the figures of the ways in `order`, of their turns and those of "ported".

    `reasons` says of ways that took none why not.
    """
    figures = {way: EagerWay(reason=reasons.get(way, "")) for way in order}
    for way in set(order) - set(reasons):
        figures[way] = EagerWay(
            step_seconds=turns[way].spread(steps_per_call=steps_per_call),
            cpu_seconds=turns[way].timing.cpu.median / steps_per_call,
            speed_up=divide_times(turns[way], turns["ported"]),
        )
    ready = {way: figure.speed_up for way, figure in figures.items() if figure.speed_up is not None}
    best = min(ready, key=lambda way: ready[way].wall.median, default=None)
    return Against(figures, best, None if best is None else ready[best])
