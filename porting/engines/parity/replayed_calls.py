"""Replay runs a trial as it is, and rounded at random: what candidates are compared with."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Callable, Dict, NamedTuple, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...comparison.random_rounding import RandomRounding
from ...comparison.tensors import change_weights
from ..calls.device_state import DeviceState
from ..calls.executable import BuildRequest, make_empty_state
from ..contract.trial import Trial
from ..replay.replay import ReplayExecutable

__all__ = ["SLOT", "WEIGHT", "Key", "ReplayedCalls", "collect_all"]

# What the replays of all candidates keep at most of what calls leave.
_MOST_KEPT_BYTES = 256 << 20
WEIGHT, SLOT = "weight", "slot "
"""The kinds of weights, and what those of an optimizer's states begin with."""


class ReplayedCalls:
    """What replay returns and leaves after each call of a trial, as it is and rounded at random; run when asked for.

    What fits into some memory is kept for the next candidate; otherwise it is run again.
    """

    def __init__(self, graph: StepGraph, request: BuildRequest, trial: Trial) -> None:
        """Run nothing yet."""
        self._graph, self._request, self._trial = graph, request, trial
        self._kept: Dict[Tuple[int, int], Dict[Key, torch.Tensor]] = {}
        self._room = _MOST_KEPT_BYTES
        # the run that is under way for example 0, and the one for another
        self._runs: Dict[bool, _Run] = {}

    def collect(self, call: int, *, example: int = 0) -> Dict[Key, torch.Tensor]:
        """Return all that there is after a call, of which the first is 1; only valid until the next `collect`.

        Example 0 is replay as it is. Each further one rounds otherwise, and begins with weights whose last bits differ.
        """
        kept = self._kept.get((example, call))
        if kept is not None:
            return kept
        run = self._runs.get(example > 0)
        if run is None or run.example != example or run.num_calls > call:
            run = self._runs[example > 0] = _Run(self._graph, self._request, self._trial, example)
        left = run.go_to(call)
        num_bytes = sum(value.numel() * value.element_size() for value in left.values())
        if num_bytes <= self._room:
            self._room -= num_bytes
            # the state goes on
            self._kept[example, call] = {key: value.clone() for key, value in left.items()}
        return left

    def run_ahead(self, num_calls: int, *, while_wanted: Callable[[], bool]) -> None:
        """Run so many calls before somebody asks for them, or as many as are wanted and can be kept.

        Who asks for them sees what goes wrong.
        """
        try:
            for call in range(1, num_calls + 1):
                if not while_wanted():
                    return
                self.collect(call)
                if (0, call) not in self._kept:
                    return
        except Exception:
            self._runs.clear()  # the state is that of half a call


class _Run:
    """One training by replay."""

    def __init__(self, graph: StepGraph, request: BuildRequest, trial: Trial, example: int) -> None:
        self.example, self.num_calls = example, 0
        self._trial, self._replay = trial, ReplayExecutable(graph)
        self._rounding = RandomRounding(example) if example else nullcontext()
        self._state = trial.prepare(make_empty_state(graph, request))
        self._left: Dict[Key, torch.Tensor] = {}
        if example:
            change_weights(self._state.parameters.values(), example)

    def go_to(self, call: int) -> Dict[Key, torch.Tensor]:
        """Run until so many calls are done; return what the last one left."""
        while self.num_calls < call:
            with self._rounding:
                results = self._trial.run(self._replay, self._state)
            self.num_calls += 1
            self._left = collect_all(results, self._state)
        return self._left


class Key(NamedTuple):
    """A tensor that is compared: those of a `kind` have about one scale, `text` is for people.

    `name` is that of the weight, also for the states that an optimizer keeps for it.
    """

    kind: str
    text: str
    name: str = ""


def collect_all(results: Sequence[torch.Tensor], state: DeviceState) -> Dict[Key, torch.Tensor]:
    """Return all that a call returned and left, with names for people."""
    named = {Key(f"result {index}", f"result {index}"): result for index, result in enumerate(results)}
    named.update({Key(WEIGHT, f"weight `{name}`", name): weight for name, weight in state.parameters.items()})
    for replica, buffers in enumerate(state.buffers):
        where = f" of replica {replica}" if replica else ""
        named.update({Key(f"buffer {name}", f"buffer `{name}`{where}"): value for name, value in buffers.items()})
    for name, slots in sorted(state.slots.items()):
        for slot, value in sorted(slots.items()):
            named[Key(f"{SLOT}{slot}", f"optimizer state `{slot}` of `{name}`", name)] = value
    if state.loss_scale_factor is not None:
        named[Key("factor", "the loss scaling's factor")] = state.loss_scale_factor
    if state.rng_state is not None:
        named[Key("stream", "the random stream")] = state.rng_state
    return {key: value.detach() for key, value in named.items()}
