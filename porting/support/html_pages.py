"""A page of HTML that needs nothing else: its frame and its style, which all pages of this package share."""

from __future__ import annotations

from html import escape
from typing import Iterable

__all__ = ["write_page"]

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


def write_page(title: str, body: Iterable[str], *, style: str = "") -> str:
    """Write a page with this title; `body` are lines of HTML, `style` what they need beyond the common style.

    >>> write_page("a < b", ["<p>text</p>"]).splitlines()[0]
    '<!DOCTYPE html>'
    """
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )
