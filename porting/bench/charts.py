"""The picture of a run, as PNG: the speed-up of every cell with its interval, and the time of a step on both sides.

And the run as one HTML page that needs nothing else: the picture as SVG, the table, and the details of every cell.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any, Callable, Iterator, List, Mapping, Sequence, Tuple

from porting.diagnostics import require_extra
from porting.executables.settings import format_bytes

from .pages import lay_out_result, list_figures, name_cell, name_cells

__all__ = ["EAGER_COLOUR", "PORTED_COLOUR", "require_matplotlib", "write_html", "write_png"]

Plain = Mapping[str, Any]

EAGER_COLOUR, PORTED_COLOUR = "#8a8f98", "#2463a8"

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1c2733; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid #dde3ea; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.ok { color: #1a7f43; } .no { color: #b3261e; } .quiet { color: #667380; }
pre { background: #f5f7f9; padding: .8rem; overflow-x: auto; font-size: 13px; }
svg { max-width: 100%; height: auto; } svg text { font: 13px system-ui, sans-serif; }
summary { cursor: pointer; padding: .2rem 0; }
"""

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
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f"<title>porting bench, {escape(str(results['created']))}</title><style>{_STYLE}</style></head><body>",
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
            *([compared] if comparison else []),
            "<h2>Details</h2>",
            *(
                f"<details><summary>{escape(name_cell(cell))}</summary><pre>{escape(text)}</pre></details>"
                for cell, text in zip(cells, details)
            ),
            "</body></html>",
            "",
        ]
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


# -- the table ---------------------------------------------------------------------------------------------------------

_HEADER = (
    "workload",
    "eager step",
    "ported step",
    "speed-up",
    "95 % interval",
    "processor",
    "asked",
    "compiling",
    "pays after",
    "memory",
    "losses",
)


def _write_figures(cell: Plain) -> Iterator[str]:
    result, asked = cell["result"], cell["demanded"]
    if result is None:
        yield f'<td colspan="{len(_HEADER) - 1}" class="no">{escape(cell["status"].replace("_", " "))}</td>'
        return
    eager, ported, speed_up, interval, cpu, compiling, pays, memory, verdict = list_figures(result)
    reached = "quiet" if asked is None else "ok" if result["speed_up"]["wall"]["median"] >= asked else "no"
    asked_for = "-" if asked is None else f"{asked:.2f}"
    steps = pays if pays == "never" else f"{pays} steps"
    texts = (eager, ported, speed_up, interval, cpu, asked_for, compiling, steps, memory, verdict)
    kinds = ("", "", reached, "quiet", "", "quiet", "", "", "", "no" if verdict == "fail" else "ok")
    for text, kind in zip(texts, kinds):
        yield f'<td class="{kind}">{escape(text)}</td>' if kind else f"<td>{escape(text)}</td>"


# -- as PNG ------------------------------------------------------------------------------------------------------------

# of the axis: how wide a mark and a figure are
_MARK_SHARE, _LABEL_SHARE = 0.015, 0.08


def write_png(results: Plain, path: Path) -> None:
    """Draw the cells that have a result; raises PortingError X001 when matplotlib is not installed."""
    figures = require_matplotlib()
    cells = [cell for cell in results["cells"] if cell["result"] is not None]
    figure = figures.Figure(figsize=(12, 1.6 + 0.42 * max(1, len(cells))), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, gridspec_kw={"width_ratios": [3, 2]})
    _draw_speed_ups(left, cells)
    for shift, side, colour in ((-0.15, "eager", EAGER_COLOUR), (0.15, "ported", PORTED_COLOUR)):
        medians, errors = _find_extent([cell["result"][side]["step_seconds"] for cell in cells], scale=1e3)
        places = [place + shift for place in range(len(cells))]
        right.errorbar(medians, places, xerr=errors, fmt="o", color=colour, capsize=3, markersize=5, label=side)
    if cells:
        right.set_xscale("log")
        right.legend(loc="best", fontsize=8)
    right.grid(axis="x", color="#dddddd", linewidth=0.6)
    right.set_axisbelow(True)
    right.set_xlabel("ms of a step (median, quartiles)")
    machine, common = results["machine"], name_cells(cells)[0]
    figure.suptitle(
        "training: ported against eager"
        + (f" ({common})" if common else "")
        + f"\n{machine['processor']}, {machine['num_cores']} cores, torch {machine['torch']}",
        fontsize=10,
    )
    figure.savefig(path, dpi=130, format="png")


def require_matplotlib() -> Any:
    """Import what draws without the machinery that opens windows; raises PortingError X001 without matplotlib."""
    return require_extra(
        "matplotlib.figure",
        extra="bench",
        message="a picture is asked for, and matplotlib is not installed",
        help=["`--html FILE` draws without it"],
    )


def _draw_speed_ups(axes: Any, cells: Sequence[Plain]) -> None:
    places: List[int] = list(range(len(cells)))
    intervals = [cell["result"]["speed_up"]["wall"] for cell in cells]
    medians, errors = _find_extent(intervals)
    axes.barh(places, medians, height=0.6, color=PORTED_COLOUR)
    axes.errorbar(medians, places, xerr=errors, fmt="none", ecolor="black", capsize=3, linewidth=1)
    asked = [(place, cell["demanded"]) for place, cell in zip(places, cells) if cell["demanded"] is not None]
    if asked:
        axes.plot(*zip(*((value, place) for place, value in asked)), "D", color="#c0392b", markersize=6, label="asked")
        axes.legend(loc="lower right", fontsize=8)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(places, name_cells(cells)[1], fontsize=9)
    axes.set_ylim(len(cells) - 0.4, -0.6)
    limit = 1.15 * max([1.0, *(interval["high"] for interval in intervals), *(value for _, value in asked)])
    axes.set_xlim(0, limit)
    for place, cell, interval in zip(places, cells, intervals):
        # the figure stands at its bar, unless the mark is in the way
        gap = (cell["demanded"] or 0.0) - interval["high"]
        edge = cell["demanded"] if -_MARK_SHARE * limit < gap < _LABEL_SHARE * limit else interval["high"]
        axes.annotate(f"{interval['median']:.2f}", (edge, place), (8, 0), textcoords="offset points", va="center")
    axes.set_xlabel("speed-up over eager (median of rounds, 95 % interval)")


def _find_extent(intervals: Sequence[Plain], *, scale: float = 1.0) -> Tuple[List[float], List[List[float]]]:
    """Return the medians, and how far down and up the intervals reach from them."""
    medians = [scale * interval["median"] for interval in intervals]
    below = [scale * (interval["median"] - interval["low"]) for interval in intervals]
    return medians, [below, [scale * (interval["high"] - interval["median"]) for interval in intervals]]
