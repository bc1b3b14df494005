"""This module finds out how times grow with one choice, such as the number of layers.

The slope of log(time) over log(size) tells: 1 is linear growth, 0 is constant, and 2 is quadratic.
"""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from porting.bench.tables import Plain, Row, Table, name_case, write_seconds

__all__ = ["GROWN", "Growth", "find_slope", "judge_slope", "list_growths", "make_growth_table"]

GROWN = ("layers", "batch", "accumulation", "replicas", "device_iterations")
"""The choices whose growth is looked at."""

_LEAST_SIZES = 3
_CONSTANT, _LINEAR, _ABOVE = 0.2, 0.8, 1.2


@dataclass(frozen=True)
class Growth:
    """The figures of cases that differ in one choice alone, `grown`; `seconds` and `slopes` are by figure.

    `sizes` are the choice's values in order. Seconds are medians over the repeats of a case, None where not known, and
    there is no slope then, or for fewer than three sizes.
    """

    title: str
    grown: str
    sizes: Tuple[int, ...]
    seconds: Mapping[str, Tuple[Optional[float], ...]]

    @property
    def slopes(self) -> Dict[str, Optional[float]]:
        """The slope of each figure."""
        return {name: find_slope(self.sizes, seconds) for name, seconds in self.seconds.items()}


def list_growths(cases: Sequence[Plain]) -> List[Growth]:
    """Group the cases that differ in one number only, where it has at least three values.

    Cases whose call overhead was not measured are left out.
    """
    measured = [case for case in cases if case["result"] and case["result"]["machinery"]["plan_seconds"] is not None]
    found = []
    for grown in GROWN:
        groups: Dict[str, List[Plain]] = {}
        for case in measured:
            if case["choices"].get(grown) is not None:
                others = {**case["choices"], grown: None}
                groups.setdefault(json.dumps([case["name"], others], sort_keys=True), []).append(case)
        found += [_make_growth(grown, group) for group in groups.values() if len(_list_sizes(grown, group)) > 2]
    return found


def _list_sizes(grown: str, cases: Sequence[Plain]) -> List[int]:
    return sorted({case["choices"][grown] for case in cases})


def _make_growth(grown: str, cases: Sequence[Plain]) -> Growth:
    sizes = _list_sizes(grown, cases)
    by_size = [[case["result"] for case in cases if case["choices"][grown] == size] for size in sizes]
    seconds = {
        title: tuple(_find_median([result["machinery"][figure] for result in results]) for results in by_size)
        for title, figure in _FIGURES.items()
    }
    others = {**cases[0]["choices"], grown: None}
    return Growth(name_case({**cases[0], "choices": others, "repeat": 1}), grown, tuple(sizes), seconds)


_FIGURES: Mapping[str, str] = {
    "capture": "capture_seconds",
    "first call": "first_call_seconds",
    "plan of a call": "plan_seconds",
    "around a run": "around_seconds",
    "beyond operators": "beyond_seconds",
    "call": "call_seconds",
}


def _find_median(values: Sequence[Optional[float]]) -> Optional[float]:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def find_slope(sizes: Sequence[int], seconds: Sequence[Optional[float]]) -> Optional[float]:
    """Return the slope of log(seconds) over log(sizes) by least squares; None for fewer than three that are known.

    >>> round(find_slope([1, 2, 4, 8], [3.0, 6.0, 12.0, 24.0]), 6)
    1.0
    >>> find_slope([1, 2, 4], [3.0, None, 12.0]) is None
    True
    """
    known = [(math.log(size), math.log(value)) for size, value in zip(sizes, seconds) if value]
    if len(known) < _LEAST_SIZES:
        return None
    by_size, by_seconds = np.array(known).T
    return float(np.polyfit(by_size, by_seconds, deg=1)[0])


def judge_slope(slope: Optional[float]) -> str:
    """Say in a word how a figure of this slope grows.

    >>> [judge_slope(slope) for slope in (None, 0.1, 0.5, 1.05, 1.9)]
    ['-', 'constant', 'below linear', 'linear', 'above linear']
    """
    if slope is None:
        return "-"
    if slope < _CONSTANT:
        return "constant"
    return "below linear" if slope < _LINEAR else "linear" if slope <= _ABOVE else "above linear"


# -- tables ------------------------------------------------------------------------------------------------------------


def make_growth_table(growth: Growth) -> Table:
    """Make the table of a growth: a column for each size, the slope, and what it means."""
    grown, first, slopes = growth.grown.replace("_", " "), growth.sizes[0], growth.slopes
    rows: List[Row] = [(grown, *(f"{size:,} (x{size / first:g})" for size in growth.sizes), "slope", "")]
    for title, seconds in growth.seconds.items():
        slope = slopes[title]
        texts = ("-" if value is None else write_seconds(value) for value in seconds)
        rows.append((title, *texts, "-" if slope is None else f"{slope:.2f}", judge_slope(slope)))
    explained = f"slope of log(seconds) over log({growth.grown}), least squares: 1 is linear, 0 constant"
    return Table(f"growth with {grown}: {growth.title}", rows, [explained])
