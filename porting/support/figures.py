"""matplotlib draws every picture of this package: as SVG for pages, and as PNG for files.

Pictures in pages are narrow enough for a telephone, and their text takes the colour of the page, be it light or dark.
"""

from __future__ import annotations

import importlib
import io
import re
import warnings
from html import escape
from typing import Any, Callable, Dict, Mapping

from porting.diagnostics import require_extra

__all__ = ["GREY", "INK", "require_matplotlib", "save_figure", "write_svg"]

GREY = "#8a8f98"
"""Legible on a white page and on a dark one."""

INK = "#1c2733"
"""The colour of text, which pages replace by that of their own: no picture needs it for itself."""

_WIDTH, _HEIGHT = 5.6, 3.2
_STYLE: Mapping[str, Any] = {
    "svg.fonttype": "none",
    # the names of parts are the same in every run
    "svg.hashsalt": "porting",
    "font.size": 10,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
}


def require_matplotlib() -> Any:
    """Import matplotlib without its window toolkits; raises PortingError X001 where it is not installed."""
    require_extra(
        "matplotlib.figure",
        extra="bench",
        message="a picture is asked for, and matplotlib is not installed",
        help=["`--json FILE` keeps the figures without it"],
    )
    return importlib.import_module("matplotlib")


def save_figure(draw: Callable[[Any], None], **settings: Any) -> bytes:
    """Draw on a figure of matplotlib in the style of all pictures, and return it as a file."""
    matplotlib, file = require_matplotlib(), io.BytesIO()
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # a page has other fonts
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        figure = matplotlib.figure.Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
        draw(figure)
        figure.savefig(file, **settings)
    return file.getvalue()


def write_svg(draw: Callable[[Any], None], described: str, titles: Dict[str, str]) -> str:
    """Write a picture for a page; parts whose names are in `titles` say their title when they are pointed at."""

    def name_part(match: Any) -> str:
        # a page has several pictures, and a name in a page is used once
        title = titles.get(match[1])
        return "<g>" if title is None else f'<g class="{match[1]}"><title>{escape(title)}</title>'

    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    text = save_figure(draw, format="svg", transparent=True, metadata=nothing).decode()
    text = re.sub(r'<g id="([^"]*)">', name_part, text[text.index("<svg") :].replace(INK, "currentColor"))
    # it takes the width that the page has for it
    return re.sub(r' width="[^"]*" height="[^"]*"', f' role="img" aria-label="{escape(described)}"', text, count=1)
