"""Follow a candidate on its way through tuning, and choose which are worth a compiler's time.

The tuner asks for them in waves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ...capture import StepGraph
from ...support.interleaved import Interval, Timing
from ..calls.executable import Choice, Executable
from ..contract.engine import replays_most
from ..contract.report import Candidate
from .candidates import PLAIN, compare_times
from .predictions import LEAST_GAIN, Forecast, explain_loss, find_score, predict, relative_cost

__all__ = ["Contestant", "choose_wave", "describe_candidate"]


@dataclass
class Contestant:
    """A candidate on its way: its graph and folder, then its executable and timing, or the problem that ended it.

    `engine` is what compiles it, and `forecast` what that expects of it. `reference` is the timing of plain replay in
    the same rounds. One that is not compiled, because it cannot win, has `left_out`; `expected` is the score that was
    predicted for it.
    """

    choice: Choice
    graph: StepGraph
    folder: Optional[Path] = None
    engine: Any = None
    forecast: Optional[Forecast] = None
    executable: Optional[Executable] = None
    compile_seconds: Optional[float] = None
    is_compared: bool = False
    worst: Optional[float] = None
    problem: str = ""
    error: Optional[Exception] = None
    lacked_time: bool = False
    lacked_room: bool = False
    timing: Optional[Timing] = None
    reference: Optional[Timing] = None
    expected: Optional[Interval] = None
    left_out: str = ""

    @property
    def is_in(self) -> bool:
        """Whether it can be chosen, as far as is known."""
        return not self.problem and self.executable is not None

    @property
    def is_waiting(self) -> bool:
        """Whether it can still be compiled."""
        return self.folder is not None and self.compile_seconds is None and not (self.problem or self.left_out)

    @property
    def score(self) -> Optional[float]:
        """What it takes, for each unit of time that plain replay took in the same rounds."""
        if self.timing is None or self.reference is None:
            return None
        return find_score(self.timing) / find_score(self.reference)


def choose_wave(contestants: Sequence[Contestant], *, num_at_once: int = 1) -> List[Contestant]:
    """Return what to compile next, one of each engine, and mark what cannot win any more.

    Of an engine there are up to `num_at_once` if each will have to be tried even if the first is as fast as expected.
    What compiles in seconds goes first: beside what it reaches, others may have no chance.
    """
    scores = {one.choice: one.score for one in contestants if one.score is not None}
    # a replay that is out because of its rounding tells as well what its memory format is worth
    replays = {choice: score for choice, score in scores.items() if choice.engine == PLAIN.engine}
    are_in = {one.choice: scores[one.choice] for one in contestants if one.is_in and one.choice in scores}
    compiled = {choice: score for choice, score in are_in.items() if choice.engine != PLAIN.engine}
    forecasts = {one.choice: one.forecast for one in contestants if one.forecast is not None}
    best = min(are_in.values(), default=1.0)
    chosen: Dict[str, Contestant] = {}
    costs: Dict[str, float] = {}
    waiting: Dict[str, List[Contestant]] = {}
    for contestant in contestants:
        choice = contestant.choice
        if not contestant.is_waiting:
            continue
        contestant.expected = predict(choice, compiled, replays, forecasts)
        is_first = not any(other.engine == choice.engine for other in compiled)
        contestant.left_out = explain_loss(contestant.expected, best, is_first=is_first)
        if replays_most(contestant.engine) and not contestant.left_out:
            contestant.left_out = _compare_updates(choice, replays)
        if contestant.left_out:
            continue
        own = relative_cost(choice, replays, contestant.forecast)
        waiting.setdefault(choice.engine, []).append(contestant)
        if own * LEAST_GAIN <= costs.get(choice.engine, math.inf):
            chosen[choice.engine], costs[choice.engine] = contestant, own
    found = []
    quick = {name: first for name, first in chosen.items() if replays_most(first.engine)}
    for name, first in (quick or chosen).items():
        after = {**compiled, first.choice: costs[name]}
        others = [
            one
            for one in waiting[name]
            if one is not first
            and not explain_loss(predict(one.choice, after, replays, forecasts), costs[name], is_first=False)
        ]
        found += [first, *others][:num_at_once]
    return found


def _compare_updates(choice: Choice, replays: Mapping[Choice, float]) -> str:
    """Say why the other kind of update is the better one for what is replayed, as `choice` is; empty if it is not."""
    own, other = (
        replays.get(replace(PLAIN, fused_update=fused)) for fused in (choice.fused_update, not choice.fused_update)
    )
    if own is None or other is None or (own, choice.fused_update) <= (other, not choice.fused_update):
        return ""
    return f"its update takes replay {own / other:.2f} times as long as the other one"


def describe_candidate(contestant: Contestant) -> Candidate:
    """Write down what became of a contestant."""
    timing, reference, expected = contestant.timing, contestant.reference, contestant.expected
    found = Candidate(
        contestant.choice,
        contestant.compile_seconds,
        worst=contestant.worst,
        problem=contestant.problem,
        left_out=contestant.left_out,
        expected=None if expected is None else Interval(1 / expected.median, 1 / expected.high, 1 / expected.low),
    )
    if timing is None or reference is None:
        return found
    return replace(
        found,
        cpu_seconds=timing.cpu.median,
        wall_seconds=timing.wall.median,
        speed_up=compare_times(reference, timing, by_processor=True),
        clock_speed_up=compare_times(reference, timing, by_processor=False),
    )
