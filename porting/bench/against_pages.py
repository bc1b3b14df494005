"""These tables show how much faster the port is than each way to train without it, and than the fastest of them.

The command prints them, pages show the same rows, and result files keep their summary.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from porting.bench.pages import name_case, name_cases, write_seconds
from porting.diagnostics import align_columns

__all__ = ["AGAINST_TITLE", "lay_out_ways", "list_way_rows", "summarize_cases", "tell_ways"]

Plain = Mapping[str, Any]

AGAINST_TITLE = "against the ways to train without the port: their time / its time by the clock (in processor time)"
_CLOCKS = {"wall": "by the clock", "cpu": "in processor time"}


def summarize_cases(cases: Sequence[Plain], *, demanded_mean: Optional[float] = None) -> Optional[Dict[str, Any]]:
    """Return the mean and the smallest speed-up over the fastest way; None where no case was timed against any.

    For each clock, the fastest way is the one with the smallest ratio. `demanded_mean` is the geometric mean that
    is demanded by the clock.
    """
    measured = _choose_measured(cases)
    if not measured:
        return None
    summary: Dict[str, Any] = {"num_cells": len(measured), "demanded_mean": demanded_mean}
    for clock in _CLOCKS:
        ratios = {name_case(case): _find_least(case["result"]["against"], clock) for case in measured}
        smallest = min(ratios, key=lambda name: ratios[name])
        mean = math.exp(sum(math.log(ratio) for ratio in ratios.values()) / len(ratios))
        summary[clock] = {"geometric_mean": mean, "smallest": ratios[smallest], "smallest_of": smallest}
    return summary


def lay_out_ways(cases: Sequence[Plain], *, summary: Optional[Plain]) -> Iterator[str]:
    """Lay out the table of all cases that were timed against several ways, with its summary below."""
    rows = list_way_rows(cases)
    if rows:
        yield AGAINST_TITLE
        yield from align_columns([("", *row) for row in rows], right=range(2, len(rows[0])))
        yield from (f"  {line}" for line in tell_ways(cases, summary=summary))


def list_way_rows(cases: Sequence[Plain]) -> List[Tuple[str, ...]]:
    """List the header and a row for each case that was timed against several ways; empty where none was."""
    measured = _choose_measured(cases)
    if not measured:
        return []
    ways = list(dict.fromkeys(way for case in measured for way in case["result"]["against"]["ways"]))
    rows = [("workload", "ported", *ways, "best", "over the best (95 %)", "asked", "losses")]
    for case, title in zip(measured, name_cases(measured)[1]):
        result, asked = case["result"], case["demanded"]
        against = result["against"]
        reached = against["speed_up"]["wall"]
        verdict = "" if asked is None else " ok" if reached["median"] >= asked else " no"
        rows.append(
            (
                title,
                write_seconds(result["ported"]["step_seconds"]["median"]),
                *(_write_ratio(against["ways"].get(way)) for way in ways),
                against["best"],
                f"{reached['median']:.2f} ({reached['low']:.2f}-{reached['high']:.2f})",
                "-" if asked is None else f"{asked:.2f}{verdict}",
                result["parity"]["verdict"],
            )
        )
    return rows


def tell_ways(cases: Sequence[Plain], *, summary: Optional[Plain]) -> Iterator[str]:
    """Say the mean and the smallest speed-up, which cases are below 1, and why a way could not train a model."""
    measured = _choose_measured(cases)
    if summary is not None:
        asked, mean = summary["demanded_mean"], summary["wall"]["geometric_mean"]
        means = (f"{summary[clock]['geometric_mean']:.2f} {words}" for clock, words in _CLOCKS.items())
        is_reached = "" if asked is None else f" (asked {asked:.2f} {'ok' if mean >= asked else 'no'})"
        yield f"geometric mean of {summary['num_cells']} over the best: {', '.join(means)}{is_reached}"
        least = (
            f"{summary[clock]['smallest']:.2f} {words} ({summary[clock]['smallest_of']})"
            for clock, words in _CLOCKS.items()
        )
        yield f"smallest: {', '.join(least)}"
        for clock, words in _CLOCKS.items():
            behind = [name_case(case) for case in measured if _find_least(case["result"]["against"], clock) < 1]
            if behind:
                yield f"below 1 {words}: {', '.join(behind)}"
    for case in measured:
        for way, figures in case["result"]["against"]["ways"].items():
            if figures["reason"]:
                yield f"{name_case(case)}, not timed: {way}: {figures['reason']}"


def _choose_measured(cases: Sequence[Plain]) -> List[Plain]:
    """Choose the cases that have a speed-up over a best way."""
    return [case for case in cases if case["result"] is not None and case["result"]["against"]["best"] is not None]


def _find_least(against: Plain, clock: str) -> float:
    ratios = (way["speed_up"] for way in against["ways"].values())
    return min(float(ratio[clock]["median"]) for ratio in ratios if ratio is not None)


def _write_ratio(way: Optional[Plain]) -> str:
    if way is None or way["speed_up"] is None:
        return "-"
    return f"{way['speed_up']['wall']['median']:.2f} ({way['speed_up']['cpu']['median']:.2f})"
