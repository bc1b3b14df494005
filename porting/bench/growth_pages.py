"""Growth of figures as tables. The command prints them, and pages show the same rows below a picture."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Sequence, Tuple

from porting.diagnostics import align_columns

from .growth import Growth, find_growths, judge_slope
from .pages import write_seconds

__all__ = ["explain_slope", "lay_out_growth", "list_growth_rows", "name_growth"]

Plain = Mapping[str, Any]


def lay_out_growth(cells: Sequence[Plain]) -> Iterator[str]:
    """Lay out a table for every number that cells differ in alone; nothing where their machinery was not measured."""
    for number, growth in enumerate(find_growths(cells)):
        yield from ("",) if number else ()
        yield f"growth with {name_growth(growth)}"
        rows = list_growth_rows(growth)
        yield from (f"  {line}" for line in align_columns(rows, right=range(1, len(rows[0]) - 1)))
        yield f"  {explain_slope(growth)}"


def name_growth(growth: Growth) -> str:
    """Name the number that grows, and the cells that differ in it."""
    return f"{growth.grown.replace('_', ' ')}: {growth.title}"


def explain_slope(growth: Growth) -> str:
    """Say what the slopes of a table are."""
    return f"slope of log(seconds) over log({growth.grown}), least squares: 1 is linear, 0 constant"


def list_growth_rows(growth: Growth) -> List[Tuple[str, ...]]:
    """List the header and the rows of a table: a column for each size, the slope, and what it means."""
    first, slopes = growth.sizes[0], growth.slopes
    heads = (f"{size:,} (x{size / first:g})" for size in growth.sizes)
    rows: List[Tuple[str, ...]] = [(growth.grown.replace("_", " "), *heads, "slope", "")]
    for title, seconds in growth.seconds.items():
        slope = slopes[title]
        texts = ("-" if value is None else write_seconds(value) for value in seconds)
        rows.append((title, *texts, "-" if slope is None else f"{slope:.2f}", judge_slope(slope)))
    return rows
