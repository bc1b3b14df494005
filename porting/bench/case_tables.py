"""These tables show the figures of many cases, and how much faster each port is than every way to train without it.

The command prints them, pages show the same rows, and result files keep the summary of the ways.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence

from porting.bench.pages import SIDES, tell_start_up, write_failures, write_layout_copies, write_share
from porting.bench.tables import Plain, Row, Table, name_case, name_cases, write_interval, write_seconds
from porting.diagnostics import align_columns
from porting.executables.settings import format_bytes

__all__ = [
    "lay_out_machinery",
    "lay_out_orders",
    "lay_out_start_up",
    "lay_out_table",
    "list_rows",
    "list_way_tables",
    "read_counted_speed_up",
    "summarize_cases",
]


def lay_out_table(cases: Sequence[Plain], *, width: int = 120) -> Iterator[str]:
    """Lay out cases as a table of at most `width` columns: long titles are cut, failed cases say why below.

    What all cases have in common stands above the table and not in their titles.
    """
    common, titles = name_cases(cases)
    if common:
        yield from (f"all: {common}", "")
    rows = list_rows(cases)
    widths = [max(map(len, column)) for column in zip(*rows)]
    longest = max(12, width - sum(widths[1:]) - 2 * (len(widths) - 1))
    cut = (title if len(title) <= longest else title[: longest - 3] + "..." for title, *_texts in rows)
    yield from align_columns([(title, *row[1:]) for title, row in zip(cut, rows)], right=range(1, len(widths)))
    for case, title in zip(cases, titles):
        reasons = [f"{_write_status(case)}: {case['reason']}"] if case["reason"] else []
        for reason in reasons if case["result"] is None else write_failures(case["result"]):
            yield from ("", f"{title}: {reason}")


def list_rows(cases: Sequence[Plain]) -> List[Row]:
    """List the header and a row for each case, without columns that were measured for none of them."""
    rows = [("workload", *_FIGURES)]
    for case, title in zip(cases, name_cases(cases)[1]):
        told = {"speed-up (95 %)": _write_status(case), "asked": _write_asked(case)}
        if case["result"] is not None:
            told = {name: write(case) for name, write in _FIGURES.items()}
        rows.append((title, *(told.get(name, "-") for name in _FIGURES)))
    columns = [column for column in zip(*rows) if column[0] not in _LEFT_OUT_IF_EMPTY or {*column[1:]} != {"-"}]
    return list(zip(*columns))


def _write_status(case: Plain) -> str:
    return str(case["status"]).replace("_", " ")


def _write_asked(case: Plain) -> str:
    """Write the speed-up that is asked for, and whether it was reached."""
    asked, result = case["demanded"], case["result"]
    if asked is None or result is None:
        return "-" if asked is None else f"{asked:.2f}"
    return f"{asked:.2f} {'ok' if read_counted_speed_up(result)['wall']['median'] >= asked else 'no'}"


def read_counted_speed_up(result: Plain) -> Plain:
    """Return the speed-up that the target is compared with: over the fastest way without the port, or over eager."""
    speed_up: Plain = result["against"]["speed_up"] or result["speed_up"]
    return speed_up


def _write_break_even(case: Plain) -> str:
    steps = case["result"]["break_even_steps"]
    return "never" if steps is None else f"{steps:,}"


def _write_memory(case: Plain) -> str:
    ratio = case["result"]["memory"]["ratio"]
    return "-" if ratio is None else f"x{ratio:.2f}"


_FIGURES: Mapping[str, Callable[[Plain], str]] = {
    "eager": lambda case: write_seconds(case["result"]["eager"]["step_seconds"]["median"]),
    "ported": lambda case: write_seconds(case["result"]["ported"]["step_seconds"]["median"]),
    "speed-up (95 %)": lambda case: write_interval(case["result"]["speed_up"]["wall"]),
    "CPU": lambda case: f"{case['result']['speed_up']['cpu']['median']:.2f}",
    "asked": _write_asked,
    "limit": lambda case: write_share(case["result"]["limits"]["ported"]),
    "compile": lambda case: write_seconds(case["result"]["compilation"]["total_seconds"]),
    "pays after": _write_break_even,
    "memory": _write_memory,
    "copies": lambda case: write_layout_copies(case["result"]["layout_copies"]["ported"]),
    "losses": lambda case: str(case["result"]["parity"]["verdict"]),
}
_LEFT_OUT_IF_EMPTY = frozenset(["limit", "copies"])


def lay_out_start_up(cases: Sequence[Plain]) -> Iterator[str]:
    """Lay out the start-up times of processes, for the cases where they were measured."""
    for case, title in zip(cases, name_cases(cases)[1]):
        if case["result"] is not None and case["result"]["start_up"]["num_runs"]:
            yield f"start-up of {title}"
            yield from (f"  {text}" for text in tell_start_up(case["result"]["start_up"]))


def lay_out_machinery(cases: Sequence[Plain]) -> Iterator[str]:
    """Say how much time a call itself takes, judged by models that compute next to nothing."""
    told = []
    for case in cases:
        if case["name"].startswith("overhead_tiny") and case["result"] is not None:
            eager, ported = (case["result"][side]["step_seconds"]["median"] for side in SIDES)
            mode = {"overhead_tiny": "training", "overhead_tiny_inference": "inference"}[case["name"]]
            told.append(f"{1e6 * (ported - eager):.0f} us in {mode}")
    if told:
        yield f"machinery of a call: {', '.join(told)} (the tiny models' ported less eager step)"


def lay_out_orders(cases: Sequence[Plain]) -> Iterator[str]:
    """Lay out the peaks of whole processes by computation order, beside that of the order `none`."""
    peaks = {
        (case["name"], case["choices"]["order"]): case["result"]["memory"]["ported_process_bytes"]
        for case in cases
        if case["result"] is not None and case["choices"].get("order")
    }
    for (name, order), peak in peaks.items():
        plain = peaks.get((name, "none"))
        if peak is not None:
            share = "" if plain is None else f"  x{peak / plain:.2f} of none"
            yield f"peak of the process, {name}, order {order:<8}{format_bytes(peak):>12}{share}"


# -- ways to train without the port ------------------------------------------------------------------------------------

_AGAINST = "against the ways to train without the port: their time / its time by the clock (in processor time)"
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


def list_way_tables(cases: Sequence[Plain], *, summary: Optional[Plain]) -> List[Table]:
    """Make the table of all cases that were timed against several ways, with its summary below; none without such."""
    measured = _choose_measured(cases)
    ways = list(dict.fromkeys(way for case in measured for way in case["result"]["against"]["ways"]))
    rows = [("workload", "ported", *ways, "best", "over the best (95 %)", "asked", "losses")]
    for case, title in zip(measured, name_cases(measured)[1]):
        against = case["result"]["against"]
        ratios = (_write_ratio(against["ways"].get(way)) for way in ways)
        figures = (write_interval(against["speed_up"]["wall"]), _write_asked(case), _FIGURES["losses"](case))
        rows.append((title, _FIGURES["ported"](case), *ratios, against["best"], *figures))
    notes = [*_tell_summary(measured, summary), *_tell_reasons(measured)]
    return [Table(_AGAINST, rows, notes)] if measured else []


def _tell_summary(measured: Sequence[Plain], summary: Optional[Plain]) -> Iterator[str]:
    """Say the mean and the smallest speed-up, and which cases are below 1."""
    if summary is None:
        return
    asked, mean = summary["demanded_mean"], summary["wall"]["geometric_mean"]
    of_clocks = [(summary[clock], words) for clock, words in _CLOCKS.items()]
    means = (f"{figures['geometric_mean']:.2f} {words}" for figures, words in of_clocks)
    is_reached = "" if asked is None else f" (asked {asked:.2f} {'ok' if mean >= asked else 'no'})"
    yield f"geometric mean of {summary['num_cells']} over the best: {', '.join(means)}{is_reached}"
    least = (f"{figures['smallest']:.2f} {words} ({figures['smallest_of']})" for figures, words in of_clocks)
    yield f"smallest: {', '.join(least)}"
    for clock, words in _CLOCKS.items():
        behind = [name_case(case) for case in measured if _find_least(case["result"]["against"], clock) < 1]
        if behind:
            yield f"below 1 {words}: {', '.join(behind)}"


def _tell_reasons(measured: Sequence[Plain]) -> Iterator[str]:
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
