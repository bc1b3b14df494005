"""Draw the figures of a recipe's story: all have one look, open no window and become small files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, List, Mapping, Sequence, Tuple

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["BLUE", "GREY", "draw_lines", "draw_losses", "draw_memory", "finish_axes", "make_figure", "save_figure"]

Line = Tuple[str, Sequence[float], str, float]
"""The label, the values, the colour and the width."""

Part = Tuple[str, Sequence[str], str]
"""What memory is for: the label, the names of its bytes in `StageMemory`, the colour."""

# of what is ported, and of the plain training beside it
BLUE, GREY = "#2463a8", "#8a8f98"


def make_figure(*, width: float = 8, height: float = 4, layout: Any = "constrained") -> Any:
    """Return an empty figure; its sizes are in inches."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def draw_losses(
    path: Path, *panels: Sequence[Line], height: float = 4, dpi: int = 80, least: float = math.inf, **settings: Any
) -> Path:
    """Draw lines over the numbers of their steps, in panels side by side, into a PNG file; return its path.

    `least` is the least possible loss, where that is known: the entropy of the data.
    """
    figure = make_figure(height=height)
    for axes, lines in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels):
        if math.isfinite(least):
            axes.axhline(least, color="black", linestyle=":", label=f"the least possible: {least:.4f}")
        draw_lines(axes, *lines, **settings)
        axes.label_outer()
    return save_figure(figure, path, dpi=dpi)


def draw_lines(axes: Axes, *lines: Line, xlabel: str = "optimizer step", **settings: Any) -> None:
    """Draw lines over the numbers of their steps."""
    for label, values, colour, width in lines:
        axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=width, label=label)
    finish_axes(axes, xlabel=xlabel, **settings)


def finish_axes(axes: Axes, **settings: Any) -> None:
    """Add a grid and the legend; `settings` are those of matplotlib's `Axes.set`."""
    axes.set(**settings)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def draw_memory(path: Path, reports: Mapping[str, Any], parts: Sequence[Part]) -> Path:
    """Draw a bar for each IPU of memory reports, which have titles, into a PNG file; return its path."""
    figure = make_figure()
    axes = figure.subplots()
    places: List[float] = []
    labels: List[str] = []
    memories: List[Mapping[str, int]] = []
    for group, (title, report) in enumerate(reports.items()):
        for ipu in report.ipus:
            places.append(len(places) + 0.7 * group)
            labels.append(f"IPU {ipu.ipu}" + (f"\n{title}" if ipu.ipu == len(report.ipus) // 2 else ""))
            memories.append(ipu.parts)
    bottoms = [0.0] * len(places)
    for label, names, colour in parts:
        sizes = [sum(memory[name] for name in names) / 2**20 for memory in memories]
        axes.bar(places, sizes, bottom=bottoms, color=colour, width=0.8, label=label)
        bottoms = [bottom + size for bottom, size in zip(bottoms, sizes)]
    capacity = next(iter(reports.values())).target.memory_bytes / 2**20
    axes.axhline(capacity, color="black", linestyle="--", linewidth=1)
    axes.text(places[-1] + 0.4, 1.03 * capacity, "memory of an IPU", ha="right", fontsize=8)
    axes.set_xticks(places, labels, fontsize=8)
    axes.set_ylabel("MiB for each IPU")
    axes.legend(fontsize=8)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path, *, dpi: int = 80) -> Path:
    """Write a figure as a PNG file, and return its path."""
    figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
    return path
