"""The picture of a run, as PNG: the speed-up of every cell with its interval, and the time of a step on both sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple

from porting.diagnostics import require_extra

from .pages import name_cells

__all__ = ["EAGER_COLOUR", "PORTED_COLOUR", "require_matplotlib", "write_png"]

EAGER_COLOUR, PORTED_COLOUR = "#8a8f98", "#2463a8"

# of the axis: how wide a mark and a figure are
_MARK_SHARE, _LABEL_SHARE = 0.015, 0.08

Plain = Mapping[str, Any]


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
