"""Growth of figures as text and as a part of HTML pages."""

from __future__ import annotations

from html import escape
from typing import Any, Iterator, List, Mapping, Sequence, Tuple

from porting.diagnostics import align_columns

from .growth import Growth, find_growths, judge_slope
from .growth_chart import draw_growth
from .pages import write_seconds

__all__ = ["lay_out_growth", "write_growth"]

Plain = Mapping[str, Any]

_EXPLAINED = "slope of log(seconds) over log({}), least squares: 1 is linear, 0 constant"


def lay_out_growth(cells: Sequence[Plain]) -> Iterator[str]:
    """Lay out a table for every number that cells differ in alone; nothing where their machinery was not measured."""
    for number, growth in enumerate(find_growths(cells)):
        yield from ("",) if number else ()
        yield f"growth with {growth.grown.replace('_', ' ')}: {growth.title}"
        rows = _list_rows(growth)
        yield from (f"  {line}" for line in align_columns(rows, right=range(1, len(rows[0]) - 1)))
        yield f"  {_EXPLAINED.format(growth.grown)}"


def write_growth(cells: Sequence[Plain]) -> Iterator[str]:
    """Write the same tables for a page."""
    growths = find_growths(cells)
    if growths:
        yield "<h2>Growth</h2>"
    for growth in growths:
        yield f"<h3>With {escape(growth.grown.replace('_', ' '))}: {escape(growth.title)}</h3>"
        yield from draw_growth(growth)
        header, *rows = _list_rows(growth)
        yield f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in header)}</tr>"
        for row in rows:
            kind = ' class="no"' if row[-1] == "above linear" else ""
            yield f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row[:-1])}<td{kind}>{row[-1]}</td></tr>"
        yield f'</table><p class="quiet">{escape(_EXPLAINED.format(growth.grown))}</p>'


def _list_rows(growth: Growth) -> List[Tuple[str, ...]]:
    first, slopes = growth.sizes[0], growth.slopes
    heads = (f"{size:,} (x{size / first:g})" for size in growth.sizes)
    rows: List[Tuple[str, ...]] = [(growth.grown.replace("_", " "), *heads, "slope", "")]
    for title, seconds in growth.seconds.items():
        slope = slopes[title]
        texts = ("-" if value is None else write_seconds(value) for value in seconds)
        rows.append((title, *texts, "-" if slope is None else f"{slope:.2f}", judge_slope(slope)))
    return rows
