"""The time of each operator of a captured step, forward and backward, measured while a rehearsal is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Dict, List, Optional

from ...diagnostics import Place
from ...observe.autograd_nodes import NewNodes
from ...observe.watcher import BackwardPass, ForwardResults, OperatorCall, StepState, WatchedOperator
from ...structure import flatten_tensors
from ..calls.rehearsal import Rehearsal
from .watched_replay import watch_replay

if TYPE_CHECKING:  # torch 2.0 has it not
    from torch.autograd.graph import Node

__all__ = ["TimedSpan", "time_operators"]


@dataclass(frozen=True)
class TimedSpan:
    """What took from `start_seconds` on `seconds`, counted from the start of the replay.

    `phase` is "forward", "backward" or "update". `name` is the operator's, or that of the phase for the phase as a
    whole, which has `is_phase`.
    """

    phase: str
    name: str
    start_seconds: float
    seconds: float
    module_path: str = ""
    place: Optional[Place] = None
    is_phase: bool = False


def time_operators(rehearsal: Rehearsal) -> List[TimedSpan]:
    """Replay the call and return its passes and their operators; the rehearsal is used up.

    An operator's time in the backward pass is that of all of autograd's functions that it brought. Looking at the clock
    adds about a microsecond to each operator. The update is one span.
    """
    clock = _Clock()
    replay = watch_replay(rehearsal, clock)
    clock.begin()
    replay()
    return sorted(clock.spans, key=lambda span: (span.start_seconds, -span.seconds))


class _Clock:
    """The watcher that takes the time of operators, passes and updates."""

    def __init__(self) -> None:
        self.spans: List[TimedSpan] = []
        self._nodes = NewNodes()
        self._start = self._mark = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self._start = self._mark = perf_counter()

    def run_operator(self, call: OperatorCall) -> Any:
        """Run an operator of a forward pass and take its time."""
        start = perf_counter()
        results = call.run()
        self._add_span("forward", call.operator.name, start, perf_counter(), call.operator)
        for node in self._nodes.take(flatten_tensors(results)):
            self._time_backward(node, call.operator)
        return results

    def end_forward(self, _results: ForwardResults) -> None:
        """End a forward pass."""
        self._end_phase("forward")

    def run_backward(self, backward: BackwardPass) -> None:
        """Take the time of a backward pass."""
        self._mark = perf_counter()
        backward.run()
        self._end_phase("backward")
        self._nodes = NewNodes()

    def end_update(self, _state: StepState) -> None:
        """End an update."""
        self._end_phase("update")

    def _time_backward(self, node: Node, operator: WatchedOperator) -> None:
        starts: Dict[str, float] = {}
        # a hook that knew its node would keep it, and the weights, for ever: no collector looks into autograd's graph
        name = f"{operator.name} ({node.name()})"

        def begin(_incoming: object) -> None:
            starts["at"] = perf_counter()

        def end(_outgoing: object, _incoming: object) -> None:
            self._add_span("backward", name, starts["at"], perf_counter(), operator)

        node.register_prehook(begin)
        node.register_hook(end)

    def _add_span(
        self, phase: str, name: str, start: float, end: float, operator: Optional[WatchedOperator] = None
    ) -> None:
        self.spans.append(
            TimedSpan(
                phase=phase,
                name=name,
                start_seconds=start - self._start,
                seconds=end - start,
                module_path="" if operator is None else operator.module_path,
                place=None if operator is None else operator.place,
                is_phase=operator is None,
            )
        )

    def _end_phase(self, phase: str) -> None:
        now = perf_counter()
        self._add_span(phase, phase, self._mark, now)
        self._mark = now
