"""Figures for the pictures of a recipe's story: all have one look, open no window and become small files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence, Tuple

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

__all__ = ["BLUE", "GREY", "draw_lines", "finish_axes", "make_figure", "save_figure"]

# of what is ported, and of the plain training beside it
BLUE, GREY = "#2463a8", "#8a8f98"


def make_figure(*, width: float = 8, height: float = 4, layout: Any = "constrained") -> Any:
    """Return an empty figure; its sizes are in inches."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure


def draw_lines(
    axes: Any, *lines: Tuple[str, Sequence[float], str, float], xlabel: str = "optimizer step", **settings: Any
) -> None:
    """Draw lines over the numbers of their steps: of each the label, the values, the colour and the width."""
    for label, values, colour, width in lines:
        axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=width, label=label)
    finish_axes(axes, xlabel=xlabel, **settings)


def finish_axes(axes: Any, **settings: Any) -> None:
    """Add a grid and the legend; `settings` are those of matplotlib's `Axes.set`."""
    axes.set(**settings)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def save_figure(figure: Any, path: Path, *, dpi: int = 80) -> Path:
    """Write a figure as a PNG file, and return its path."""
    figure.savefig(path, dpi=dpi, pil_kwargs={"optimize": True})
    return path
