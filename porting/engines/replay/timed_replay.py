"""The time of each operator of a captured step, forward and backward, measured while a rehearsal is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from ...diagnostics import Place
from ...support.autograd_nodes import NewNodes, is_leaf_node
from ..calls.call_plan import MicroBatch
from ..calls.device_state import DeviceState
from ..calls.rehearsal import Rehearsal
from .direct_calls import Call
from .operator_watch import describe_operator, list_leaves
from .replay import ReplayExecutable

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
    executable = ReplayExecutable(rehearsal.graph, observer=clock, watch_operator=clock.watch_operator)
    clock.begin()
    executable.run(
        rehearsal.state, rehearsal.inputs, rehearsal.plan, groups=rehearsal.groups, group_names=rehearsal.group_names
    )
    return sorted(clock.spans, key=lambda span: (span.start_seconds, -span.seconds))


class _Clock:
    """Watches the operators, the passes and the updates of one replay."""

    def __init__(self) -> None:
        self.spans: List[TimedSpan] = []
        self._is_forward = True
        self._nodes = NewNodes()
        self._start = self._mark = 0.0

    def begin(self) -> None:
        """Count from now on."""
        self._start = self._mark = perf_counter()

    def watch_operator(self, node: torch.fx.Node, call: Call) -> Callable[..., Any]:
        """Return a function that calls the operator and takes its time."""
        operator, function = describe_operator(node), call.function

        def run(*args: Any, **kwargs: Any) -> Any:
            start = perf_counter()
            results = function(*args, **kwargs)
            if self._is_forward:
                self._add_span("forward", operator.name, start, perf_counter(), operator)
                tensors = [leaf for leaf in list_leaves(results) if isinstance(leaf, torch.Tensor)]
                for new in self._nodes.take(tensors):
                    if not is_leaf_node(new):
                        self._time_backward(new, operator)
            return results

        return run

    def _time_backward(self, node: Any, operator: Any) -> None:
        starts: Dict[str, float] = {}
        # a hook that knew its node would keep it, and the weights, for ever: no collector looks into autograd's graph
        name = f"{operator.name} ({node.name()})"

        def begin(_incoming: Any) -> None:
            starts["at"] = perf_counter()

        def end(_outgoing: Any, _incoming: Any) -> None:
            self._add_span("backward", name, starts["at"], perf_counter(), operator)

        node.register_prehook(begin)
        node.register_hook(end)

    def _add_span(self, phase: str, name: str, start: float, end: float, operator: Any = None) -> None:
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

    def after_forward(self, results: Sequence[torch.Tensor], state: DeviceState, micro_batch: MicroBatch) -> None:
        """End a forward pass."""
        self._end_phase("forward")

    def during_backward(self, backward: Callable[[], None], state: DeviceState, micro_batch: MicroBatch) -> None:
        """Take the time of a backward pass."""
        self._is_forward, self._mark = False, perf_counter()
        backward()
        self._end_phase("backward")
        self._is_forward, self._nodes = True, NewNodes()

    def after_update(self, state: DeviceState) -> None:
        """End an update."""
        self._end_phase("update")
