"""Processes of the ways to train without the port, each warm and ready to take its turns."""

from __future__ import annotations

import contextlib
from typing import Callable, Dict, Mapping, Optional

from .against import Against, sum_up_ways
from .children import start_side
from .choices import BenchSettings
from .processes import Child, ChildError
from .turns import Turn, Turns
from .workloads import Source, Workload

__all__ = ["EagerWays"]


class EagerWays:
    """Processes of the ways that `settings.against` names, which end with the context.

    `turns` has those that are ready. The way that the eager side goes anyway has no process of its own.
    """

    def __init__(self, workload: Workload, source: Optional[Source], settings: BenchSettings) -> None:
        """Start the processes; nothing is waited for."""
        self.turns: Dict[str, Callable[[int], Turn]] = {}
        self._reasons: Dict[str, str] = {}
        self._shared: Optional[str] = None
        self._order = settings.against
        self._stack = contextlib.ExitStack()
        self._children: Dict[str, Child] = {}
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
