"""A run as one HTML page that needs nothing else: the picture as SVG, the table, and the details of every cell."""

from __future__ import annotations

from html import escape
from typing import Any, Callable, Iterator, Mapping, Sequence

from porting.executables.settings import format_bytes
from porting.support.html_pages import write_page

from .against_pages import AGAINST_TITLE, list_way_rows, tell_ways
from .charts import EAGER_COLOUR, PORTED_COLOUR
from .curve_chart import draw_curve
from .curve_pages import CURVE_TITLE, list_curve_rows, tell_curve
from .growth_pages import write_growth
from .pages import lay_out_result, list_figures, name_cell, name_cells, read_counted_speed_up

__all__ = ["write_html"]

Plain = Mapping[str, Any]

# its table is wide
_STYLE = "body { max-width: 82rem; } th, td { padding: .3rem .45rem; }"

_ROW, _LEFT, _PLOT, _LABEL, _WIDTH = 30, 290, 560, 50, 960


def write_html(results: Plain, *, comparison: Sequence[str] = ()) -> str:
    """Write the page; `comparison` are the lines of a comparison with an earlier run."""
    cells, machine = results["cells"], results["machine"]
    memory = "" if machine["memory_bytes"] is None else f", {format_bytes(machine['memory_bytes'])}"
    facts = [
        f"{machine['processor']}, {machine['num_cores']} cores{memory}, {machine['system']}",
        f"Python {machine['python']}, torch {machine['torch']}, porting {machine['porting']}",
        results["created"] + ("" if results["complete"] else ", not finished"),
    ]
    details = [
        f"{cell['status']}: {cell['reason']}" if cell["result"] is None else "\n".join(lay_out_result(cell["result"]))
        for cell in cells
    ]
    compared = f"<h2>Against an earlier run</h2><pre>{escape(chr(10).join(comparison))}</pre>"
    return write_page(
        f"porting bench, {results['created']}",
        [
            "<h1>Training: ported against eager</h1>",
            f'<p class="quiet">{"<br>".join(map(escape, facts))}</p>',
            "<h2>Speed-up over eager</h2>",
            *_draw_chart([cell for cell in cells if cell["result"] is not None]),
            "<h2>Figures</h2>",
            f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in _HEADER)}</tr>",
            *(
                f"<tr><td>{escape(title)}</td>{''.join(_write_figures(cell))}</tr>"
                for cell, title in zip(cells, name_cells(cells)[1])
            ),
            "</table>",
            *_write_ways(results),
            *_write_curves(cells),
            *write_growth(cells),
            *([compared] if comparison else []),
            "<h2>Details</h2>",
            *(
                f"<details><summary>{escape(name_cell(cell))}</summary><pre>{escape(text)}</pre></details>"
                for cell, text in zip(cells, details)
            ),
        ],
        style=_STYLE,
    )


# -- the picture -------------------------------------------------------------------------------------------------------


def _draw_chart(cells: Sequence[Plain]) -> Iterator[str]:
    if not cells:
        yield "<p>No cell has a result.</p>"
        return
    intervals = [cell["result"]["speed_up"]["wall"] for cell in cells]
    largest = max([1.0, *(interval["high"] for interval in intervals), *(cell["demanded"] or 0 for cell in cells)])
    height = _ROW * len(cells) + 40

    def x(value: float) -> float:
        return round(_LEFT + _PLOT * value / (1.05 * largest), 1)

    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="speed-up of every cell over eager">'
    yield f'<line x1="{x(1)}" x2="{x(1)}" y1="0" y2="{height - 28}" stroke="{EAGER_COLOUR}" stroke-dasharray="4 3"/>'
    yield f'<text x="{x(1)}" y="{height - 10}" text-anchor="middle" fill="{EAGER_COLOUR}">eager = 1</text>'
    common, titles = name_cells(cells)
    for index, (cell, title) in enumerate(zip(cells, titles)):
        yield from _draw_bar(cell, title, index * _ROW + _ROW / 2, x)
    yield "</svg>"
    yield (
        f'<p class="quiet"><span style="color:{PORTED_COLOUR}">&#9632;</span> eager time / ported time, median of the '
        'rounds; whiskers: 95 % interval; <span class="no">&#9670;</span> what is asked for'
        f"{escape(f'; all: {common}' if common else '')}</p>"
    )


def _draw_bar(cell: Plain, title: str, y: float, x: Callable[[float], float]) -> Iterator[str]:
    interval = cell["result"]["speed_up"]["wall"]
    median, low, high = (x(interval[name]) for name in ("median", "low", "high"))
    shown = title if len(title) <= 38 else title[:37] + "\N{HORIZONTAL ELLIPSIS}"
    yield f"<g><title>{escape(name_cell(cell))}</title>"
    yield f'<text x="{_LEFT - 10}" y="{y + 4}" text-anchor="end">{escape(shown)}</text>'
    yield f'<rect x="{_LEFT}" y="{y - 9}" width="{round(median - _LEFT, 1)}" height="18" fill="{PORTED_COLOUR}"/>'
    yield f'<path d="M{low} {y}H{high}M{low} {y - 4}v8M{high} {y - 4}v8" stroke="black" fill="none"/>'
    edge = high
    if cell["demanded"] is not None:
        asked = x(cell["demanded"])
        # the figure stands at its bar, unless the mark is in the way
        edge = asked + 6 if high - 14 < asked < high + _LABEL else high
        yield f'<path d="M{asked} {y - 6}l6 6l-6 6l-6 -6z" fill="#b3261e"/>'
    yield f'<text x="{round(edge + 8, 1)}" y="{y + 4}">{interval["median"]:.2f}</text></g>'


# -- several ways to train without the port ---------------------------------------------------------------------------


def _write_ways(results: Plain) -> Iterator[str]:
    """Write the table of the cells that were timed against several ways, and what it comes to."""
    cells = results["cells"]
    rows = list_way_rows(cells)
    if not rows:
        return
    yield f'<h2>Over the best way without the port</h2><p class="quiet">{escape(AGAINST_TITLE)}</p>'
    yield f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in rows[0])}</tr>"
    yield from (f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows[1:])
    told = "\n".join(tell_ways(cells, summary=results.get("summary")))
    yield f"</table><pre>{escape(told)}</pre>"


# -- the time to N steps -----------------------------------------------------------------------------------------------


def _write_curves(cells: Sequence[Plain]) -> Iterator[str]:
    """Write picture and table of every cell that has a curve."""
    shown = [
        (title, cell["result"]["curve"])
        for cell, title in zip(cells, name_cells(cells)[1])
        if cell["result"] is not None and cell["result"].get("curve", {}).get("steps")
    ]
    if shown:
        yield f"<h2>{CURVE_TITLE[0].upper()}{CURVE_TITLE[1:]}</h2>"
        yield (
            '<p class="quiet">Seconds by the clock from the moment at which imports, model and data are there: first '
            "call, compiling and what runs in the background count. Each process is a fresh one; the cache of "
            "executables is empty (cold), or has what the step needs (warm).</p>"
        )
    for title, curve in shown:
        yield f"<h3>{escape(title)}</h3>"
        yield from draw_curve(curve)
        header, *rows = list_curve_rows(curve)
        yield f"<table><tr>{''.join(f'<th>{escape(name)}</th>' for name in header)}</tr>"
        yield from (f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in rows)
        yield "</table>"
        told = "\n".join(f"{name:<6}{text}" for name, text in tell_curve(curve))
        yield f"<pre>{escape(told)}</pre>"


# -- the table ---------------------------------------------------------------------------------------------------------

_HEADER = (
    "workload",
    "eager step",
    "ported step",
    "speed-up",
    "95 % interval",
    "processor",
    "asked",
    "of limit",
    "compiling",
    "pays after",
    "memory",
    "copies",
    "losses",
)


def _write_figures(cell: Plain) -> Iterator[str]:
    result, asked = cell["result"], cell["demanded"]
    if result is None:
        yield f'<td colspan="{len(_HEADER) - 1}" class="no">{escape(cell["status"].replace("_", " "))}</td>'
        return
    eager, ported, speed_up, interval, cpu, limit, compiling, pays, memory, copies, verdict = list_figures(result)
    reached = "quiet" if asked is None else "ok" if read_counted_speed_up(result)["wall"]["median"] >= asked else "no"
    asked_for = "-" if asked is None else f"{asked:.2f}"
    steps = pays if pays == "never" else f"{pays} steps"
    texts = (eager, ported, speed_up, interval, cpu, asked_for, limit, compiling, steps, memory, copies, verdict)
    kinds = ("", "", reached, "quiet", "", "quiet", "", "", "", "", "", "no" if verdict == "fail" else "ok")
    for text, kind in zip(texts, kinds):
        yield f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"
