"""A curve holds the time to N training steps of eager PyTorch, and of a port with a cold and a warm cache.

It counts all that a program waits for until step N is done: the first call, compiling, and background work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import NDArray

from porting.bench.choices import NOT_ASKED_FOR
from porting.bench.tables import Plain, Row, Table, name_cases, write_interval, write_seconds
from porting.support.interleaved import Interval

__all__ = [
    "CURVE_SIDES",
    "Curve",
    "CurveSide",
    "allow_seconds",
    "list_curves",
    "list_marks",
    "make_curve_table",
    "sum_up_side",
]

CURVE_SIDES = ("cold", "warm")
"""The ported sides of a curve: with an empty cache of executables, and with one that has what the step needs."""

Times = NDArray[np.float64]

_MOST_STEPS = 10_000
_BEHIND_SHARE, _BEHIND_SECONDS = 0.05, 0.3


@dataclass(frozen=True)
class CurveSide:
    """One side of a curve, over the processes that took it.

    `seconds` are those to each number of steps of the curve, and `ratios` eager time over these, None where not all
    processes have come so far: median, smallest and largest. `ahead_from` is the first step from which on the median is
    below eager's to the end. `behind_seconds` is the most that the side was behind eager, after `behind_steps`; both
    are None if it never was. `demand_share` is the largest share of what is allowed that it took, up to 1 for a side
    that was never more than 5 % and 0.3 s behind. `cpu_seconds` are those of the processes and all they started.
    `engines` has for each process what ran its calls, and after how many steps and seconds that was seen first.
    """

    seconds: Tuple[Optional[Interval], ...]
    ratios: Tuple[Optional[Interval], ...]
    num_steps: int
    cpu_seconds: float
    ahead_from: Optional[int] = None
    behind_seconds: Optional[float] = None
    behind_steps: Optional[int] = None
    demand_share: Optional[float] = None
    cache: str = "off"
    engines: Tuple[Tuple[Mapping[str, Any], ...], ...] = ()


@dataclass(frozen=True)
class Curve:
    """Times to each of `steps`, of `num_runs` fresh processes of each side; None with a `reason` where not measured.

    Time begins when imports, model and data are there, before the model is ported.
    """

    steps: Tuple[int, ...] = ()
    num_runs: int = 0
    eager: Optional[CurveSide] = None
    cold: Optional[CurveSide] = None
    warm: Optional[CurveSide] = None
    reason: str = ""


def allow_seconds(eager_seconds: float) -> float:
    """Return the time that a port is allowed where eager takes `eager_seconds`: 5 % plus 0.3 s more.

    >>> allow_seconds(10.0)
    10.8
    """
    return (1 + _BEHIND_SHARE) * eager_seconds + _BEHIND_SECONDS


def list_marks(steps_per_call: int = 1) -> List[int]:
    """List the numbers of steps at which curves are compared: 1, 2, 5, 10, ... calls, up to 10,000 steps.

    >>> list_marks()[-4:], list_marks(steps_per_call=1000)
    ([1000, 2000, 5000, 10000], [1000, 2000, 5000, 10000])
    """
    calls = (factor * 10**power for power in range(5) for factor in (1, 2, 5))
    marks = [steps_per_call * number for number in calls]
    return [mark for mark in marks if mark <= _MOST_STEPS] or marks[:1]


def sum_up_side(
    runs: Sequence[Plain], eager: Sequence[Plain], steps: Sequence[int], *, steps_per_call: int
) -> CurveSide:
    """Sum up the processes of a side against those of eager: `call_seconds` are the moments when each call was done.

    >>> eager, ported = ({"call_seconds": seconds, "cpu_seconds": 1.0} for seconds in ([2.0, 4.0], [3.0, 3.5]))
    >>> side = sum_up_side([ported], [eager], [1, 2], steps_per_call=1)
    >>> side.ahead_from, side.behind_seconds, side.ratios[1].median > 1
    (2, 1.0, True)
    """
    num_calls = min(len(run["call_seconds"]) for run in (*runs, *eager))
    taken, plain = (np.array([run["call_seconds"][:num_calls] for run in of_side]) for of_side in (runs, eager))
    looked_at = [mark // steps_per_call - 1 for mark in steps]

    def measure_extent(by_run: Times) -> Tuple[Optional[Interval], ...]:
        return tuple(
            Interval(float(np.median(by_run[:, call])), float(by_run[:, call].min()), float(by_run[:, call].max()))
            if call < num_calls
            else None
            for call in looked_at
        )

    side = CurveSide(
        seconds=measure_extent(taken),
        ratios=measure_extent(plain / taken),
        num_steps=num_calls * steps_per_call,
        cpu_seconds=float(np.median([run["cpu_seconds"] for run in runs])),
    )
    return side if runs is eager else _compare_sides(side, runs, np.median(taken, axis=0), np.median(plain, axis=0))


def _compare_sides(side: CurveSide, runs: Sequence[Plain], taken: Times, plain: Times) -> CurveSide:
    """Add what a ported side has besides its times; `taken` and `plain` are the medians after each call."""
    behind = taken - plain
    steps_per_call = side.num_steps // len(taken)
    is_behind = np.flatnonzero(behind >= 0)
    ahead_from = behind_seconds = behind_steps = None
    calls_behind = int(is_behind[-1]) + 1 if is_behind.size else 0
    if calls_behind < len(taken):
        ahead_from = (calls_behind + 1) * steps_per_call
    if is_behind.size:
        worst = int(np.argmax(behind))
        behind_seconds, behind_steps = float(behind[worst]), (worst + 1) * steps_per_call
    demand_share = max(seconds / allow_seconds(of_eager) for seconds, of_eager in zip(taken.tolist(), plain.tolist()))
    return replace(
        side,
        ahead_from=ahead_from,
        behind_seconds=behind_seconds,
        behind_steps=behind_steps,
        demand_share=demand_share,
        cache=runs[-1].get("cache", "off"),
        engines=tuple(
            tuple(
                {"name": engine["name"], "steps": engine["call"] * steps_per_call, "seconds": engine["seconds"]}
                for engine in run.get("engines", ())
            )
            for run in runs
        ),
    )


# -- tables ------------------------------------------------------------------------------------------------------------

_BEGINS = "from the moment at which imports, model and data are there"


def list_curves(cases: Sequence[Plain]) -> List[Tuple[str, Plain]]:
    """List the curve of every case for which one was asked; its name is empty where there is but one case."""
    return [
        (title if len(cases) > 1 else "", case["result"]["curve"])
        for case, title in zip(cases, name_cases(cases)[1])
        if case["result"] is not None and case["result"]["curve"]["reason"] != NOT_ASKED_FOR
    ]


def make_curve_table(curve: Plain, *, name: str = "") -> Table:
    """Make the table of one curve, or say why there is none: times, ratios, and from where on the port is ahead."""
    if not curve["steps"]:
        return Table(f"time to N steps: not measured: {curve['reason']}", name=name)
    rows: List[Row] = [("steps", "eager", "cold", "x", "warm", "x")]
    for index, steps in enumerate(curve["steps"]):
        texts = [f"{steps:,}", _write_time(curve["eager"]["seconds"][index])]
        for side in CURVE_SIDES:
            ratio = curve[side]["ratios"][index]
            texts += [_write_time(curve[side]["seconds"][index]), "-" if ratio is None else write_interval(ratio)]
        rows.append(tuple(texts))
    about = f"time to N steps, {_BEGINS}; x is eager time / ported time; medians of {curve['num_runs']} processes"
    notes = [f"{title:<14}{text}".rstrip() for title, text in _tell_curve(curve)]
    return Table(about, rows, notes, name, left=())


def _tell_curve(curve: Plain) -> Iterator[Tuple[str, str]]:
    """Say from which step on the port is ahead, how far it was behind, and which engine ran it; each with a title."""
    for name in CURVE_SIDES:
        side = curve[name]
        ahead = side["ahead_from"]
        where = f"not within {side['num_steps']:,} steps" if ahead is None else f"from step {ahead:,} on"
        worst = "never behind"
        if side["behind_seconds"] is not None:
            behind = write_seconds(max(0.0, side["behind_seconds"]))
            worst = f"{behind} behind at most, after {side['behind_steps']:,} step(s)"
        yield name, f"ahead {where}; {worst}; cache {side['cache']}, processor {write_seconds(side['cpu_seconds'])}"
        share = side["demand_share"]
        verdict = "yes" if share <= 1 else f"no: x{share:.2f} of what is allowed"
        yield "", f"at most 5 % plus 0.3 s behind: {verdict}"
        for engines in _list_different(side["engines"]):
            yield "", f"engine {engines}"


def _list_different(runs: Sequence[Sequence[Plain]]) -> List[str]:
    """Write what ran each process; what never changed is written once for all."""
    if all(len(run) == 1 for run in runs):
        return list(dict.fromkeys(run[0]["name"] for run in runs))
    return [
        f"in process {number}: {', then '.join([run[0]['name'], *map(_tell_change, run[1:])])}"
        for number, run in enumerate(runs, start=1)
        if run
    ]


def _tell_change(engine: Plain) -> str:
    return f"{engine['name']} from step {engine['steps']:,} on (after {write_seconds(engine['seconds'])})"


def _write_time(interval: Optional[Plain]) -> str:
    return "-" if interval is None else write_seconds(interval["median"])
