"""These tables show the time to 1, 2, 5, ... steps of each side, and from which step on the port is ahead.

The command prints them, and pages show the same rows beside a chart.
"""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple

from porting.bench.pages import NOT_ASKED_FOR, name_cases, write_seconds
from porting.diagnostics import align_columns

__all__ = ["CURVE_TITLE", "lay_out_curve", "lay_out_curves", "list_curve_rows", "tell_curve"]

Plain = Mapping[str, Any]

CURVE_TITLE = "time to N steps"
_BEGINS = "from the moment at which imports, model and data are there"
_PORTED = ("cold", "warm")


def lay_out_curves(cases: Sequence[Plain]) -> Iterator[str]:
    """Lay out the curve of every case that has one, by its name."""
    for case, title in zip(cases, name_cases(cases)[1]):
        if case["result"] is not None and case["result"]["curve"]["reason"] != NOT_ASKED_FOR:
            yield from ("", f"{title}:") if len(cases) > 1 else ()
            yield from lay_out_curve(case["result"]["curve"])


def lay_out_curve(curve: Plain) -> Iterator[str]:
    """Lay out one curve, or say why there is none."""
    if not curve["steps"]:
        yield f"{CURVE_TITLE}: not measured: {curve['reason']}"
        return
    yield f"{CURVE_TITLE}, {_BEGINS}; x is eager time / ported time; medians of {curve['num_runs']} processes"
    header, *rows = list_curve_rows(curve)
    yield from align_columns([("", *header), *(("", *row) for row in rows)], right=range(1, len(header) + 1))
    for title, text in tell_curve(curve):
        yield f"  {title:<14}{text}".rstrip()


def list_curve_rows(curve: Plain) -> List[Tuple[str, ...]]:
    """Write the header and the rows of the table: steps, eager, and for each ported side its time and the ratio."""
    rows: List[Tuple[str, ...]] = [("steps", "eager", "cold", "x", "warm", "x")]
    for index, steps in enumerate(curve["steps"]):
        texts = [f"{steps:,}", _write_time(curve["eager"]["seconds"][index])]
        for side in _PORTED:
            texts += [_write_time(curve[side]["seconds"][index]), _write_ratio(curve[side]["ratios"][index])]
        rows.append(tuple(texts))
    return rows


def tell_curve(curve: Plain) -> Iterator[Tuple[str, str]]:
    """Say from which step on the port is ahead, how far it was behind, and which engine ran it; each with a title."""
    for name in _PORTED:
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
        for engines in _find_different(side["engines"]):
            yield "", f"engine {engines}"


def _find_different(runs: Sequence[Sequence[Plain]]) -> List[str]:
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


def _write_ratio(interval: Optional[Plain]) -> str:
    if interval is None:
        return "-"
    median, low, high = (
        f"{interval[name]:.2f}" if interval[name] >= 0.1 else f"{interval[name]:.1g}"
        for name in ("median", "low", "high")
    )
    return f"{median} ({low}-{high})"
