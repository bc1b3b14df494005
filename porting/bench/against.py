"""This module times the port against several ways to train the same model without it.

`measure` uses it. Only a speed-up over the fastest way counts, and each way runs in a process of its own.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import Callable, Dict, Mapping, Optional, Sequence

from porting.bench.children import start_side
from porting.bench.choices import BenchSettings
from porting.bench.processes import Child, ChildError
from porting.bench.turns import Ratios, Spread, Turn, Turns, divide_times
from porting.bench.workloads import Source, Workload

__all__ = ["Against", "EagerWay", "EagerWays", "sum_up_ways"]


_logger = logging.getLogger("porting")


@dataclass(frozen=True)
class EagerWay:
    """The times of a step of one way; the speed-up is its time divided by the port's.

    Fields are None, with a `reason`, where the way cannot train this model.
    """

    step_seconds: Optional[Spread] = None
    cpu_seconds: Optional[float] = None
    speed_up: Optional[Ratios] = None
    reason: str = ""


@dataclass(frozen=True)
class Against:
    """The ways by name, the fastest of them by the clock (`best`), and the speed-up over that one."""

    ways: Mapping[str, EagerWay] = field(default_factory=dict)
    best: Optional[str] = None
    speed_up: Optional[Ratios] = None


def sum_up_ways(
    turns: Mapping[str, Turns], order: Sequence[str], *, reasons: Mapping[str, str], steps_per_call: int
) -> Against:
    """Return the figures of the ways in `order`, computed from their turns and those of "ported".

    `reasons` says why a way has no turns.
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


class EagerWays:
    """Processes of the eager side and of the ways that `settings.against` names, which end with the context.

    `turns` has those that are ready. The way that the eager side goes anyway shares its process.
    """

    def __init__(self, workload: Workload, source: Optional[Source], settings: BenchSettings) -> None:
        """Start the processes; nothing is waited for."""
        self.turns: Dict[str, Callable[[int], Turn]] = {}
        self._reasons: Dict[str, str] = {}
        self._shared: Optional[str] = None
        self._order = settings.against
        self._stack = contextlib.ExitStack()
        self._children: Dict[str, Child] = {}
        if source is not None:
            self._children["eager"] = self._stack.enter_context(start_side("eager", source, settings))
        for way in settings.against:
            chosen = settings.with_eager_way(way)
            if chosen == settings:
                self._shared = way
            elif way == "channels-last" and all(parameter.dim() != 4 for parameter in workload.model.parameters()):
                self._reasons[way] = "no weight has four dimensions"
            elif source is None:
                self._reasons[way] = "no other process can make the model"
            else:
                self._children[way] = self._stack.enter_context(start_side("eager", source, chosen))

    def wait(self) -> None:
        """Wait until every process is warm, or has ended."""
        for way, child in self._children.items():
            try:
                child.ask()
            except ChildError as failure:
                self._reasons[way] = str(failure)
                if way == "eager":
                    _logger.warning("the eager side is timed in the process of the port: %s", failure)
            else:
                self.turns[way] = child.ask

    def __enter__(self) -> EagerWays:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the processes."""
        self._stack.close()

    def sum_up(self, turns: Mapping[str, Turns], *, steps_per_call: int) -> Against:
        """Make the figures of the turns that were taken, those of "eager" and "ported" among them."""
        taken = dict(turns) if self._shared is None else {**turns, self._shared: turns["eager"]}
        return sum_up_ways(taken, self._order, reasons=self._reasons, steps_per_call=steps_per_call)
