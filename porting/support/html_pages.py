"""Write pages of HTML that need nothing else: the frame and the style that all pages of this package share."""

from __future__ import annotations

import linecache
import re
from html import escape
from itertools import zip_longest
from typing import Iterable, Iterator, List, Sequence, Tuple

from porting.diagnostics import Place

__all__ = ["mark_up", "write_fragment", "write_page", "write_source", "write_table"]

_CONTEXT_LINES = 2

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2733; --page: #fff; --faint: #667380; --line: #dde3ea; --block: #f5f7f9;
  --ok: #1a7f43; --no: #b3261e; --warn: #8a5300; --note: #2f5f96; --here: #fff3cd; --mark: #ffd24d; }
@media (prefers-color-scheme: dark) { :root { --ink: #e3e8ed; --page: #12171d; --faint: #97a3ae; --line: #323c46;
  --block: #1d252d; --ok: #5fc98a; --no: #ff8a80; --warn: #ffb95c; --note: #8ab8f0; --here: #4a3f16;
  --mark: #7a6313; } }
@media print { :root { --ink: #000; --page: #fff; --faint: #444; --line: #bbb; --block: #fff; --ok: #1a7f43;
  --no: #b3261e; --warn: #8a5300; --note: #2f5f96; }
  body { max-width: none !important; margin: 0; } pre { white-space: pre-wrap; } svg { break-inside: avoid; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
@media (max-width: 48rem) { table { display: block; overflow-x: auto; }
  .stacked, .stacked > *, .stacked tr { display: block; }
  .stacked tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .stacked tr.head, .stacked td:empty { display: none; }
  .stacked td, .stacked td:last-child { display: inline; border: 0; padding: 0 .7rem 0 0; white-space: normal; }
  .stacked td[data-of]::before { content: attr(data-of) ": "; color: var(--faint); } }
.ok { color: var(--ok); } .no { color: var(--no); } .quiet { color: var(--faint); }
pre { background: var(--block); padding: .8rem; overflow-x: auto; font-size: 13px; }
svg { max-width: 100%; height: auto; fill: currentColor; } svg text { font: 13px system-ui, sans-serif; }
summary { cursor: pointer; padding: .2rem 0; }
.facts td { text-align: left; white-space: pre-wrap; vertical-align: top; border: 0; padding: .1rem .45rem; }
.facts td:first-child { white-space: nowrap; color: var(--faint); }
pre { line-height: 1.45; } pre .number { color: var(--faint); user-select: none; }
pre .here { display: block; background: var(--here); } pre mark { background: var(--mark); color: inherit; padding: 0; }
.verdict { font-size: 1.05rem; padding: .7rem 1rem; background: var(--block); border-radius: 4px;
  border-left: 6px solid var(--faint); }
.verdict.ok { border-color: var(--ok); } .verdict.no, .verdict.error { border-color: var(--no); color: var(--no); }
.verdict.warning { border-color: var(--warn); color: var(--warn); }
.verdict.note { border-color: var(--note); color: var(--note); }
code { font-size: 90%; background: var(--block); padding: 0 .2em; border-radius: 3px; }
"""

# of Jupyter, and of the editor that shows notebooks
_NOTEBOOK_COLOURS = " ".join(
    f"--{name}: var(--jp-{of_jupyter}, var(--vscode-{of_editor}, var(--own-{name})));"
    for name, of_jupyter, of_editor in (
        ("ink", "content-font-color1", "editor-foreground"),
        ("page", "layout-color0", "editor-background"),
        ("faint", "content-font-color2", "descriptionForeground"),
        ("line", "border-color2", "editorWidget-border"),
        ("block", "layout-color2", "editorWidget-background"),
        ("ok", "success-color1", "testing-iconPassed"),
        ("no", "error-color1", "errorForeground"),
        ("warn", "warn-color1", "editorWarning-foreground"),
        ("note", "info-color1", "editorInfo-foreground"),
        ("here", "warn-color3", "editor-findMatchHighlightBackground"),
        ("mark", "warn-color2", "editor-findMatchBackground"),
    )
)


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


def write_fragment(page: str) -> str:
    """Write a page of `write_page` as a part of another page, such as a notebook, whose style it leaves alone.

    It takes the colours of the notebook, be they light or dark; elsewhere those that the reader's system prefers.

    >>> write_fragment(write_page("a title", ["<p>text</p>"])).splitlines()[-2:]
    ['<p>text</p>', '</div>']
    """
    style, _, body = page.partition("<style>")[2].partition("</style></head><body>")
    body = body.rpartition("</body>")[0].rstrip("\n")
    own = re.sub(r"--(?=[a-z]+:)", "--own-", style)
    nested = re.sub(r"(?::root|\bbody)(?= *\{)", "&", own)
    scoped = f".porting-page {{ {_NOTEBOOK_COLOURS}\n{nested}& {{ margin: 0; padding: 0; }} }}"
    return f'<div class="porting-page"><style>{scoped}</style>\n{body}\n</div>'


def write_table(rows: Sequence[Sequence[str]], *, kind: str = "") -> Iterator[str]:
    """Write a table of texts; its first row is the header, save in one of the `kind` "facts".

    On a narrow page each row is a paragraph, and its cells say what of.

    >>> list(write_table([("step", "bytes"), ("forward", "8")]))[2]
    '<tr><td>forward</td><td data-of="bytes">8</td></tr>'
    """
    header = () if kind == "facts" else rows[0]
    names = ["", *header[1:]]
    yield f'<table class="{kind or "stacked"}">'
    if header:
        yield f'<tr class="head">{"".join(f"<th>{mark_up(name)}</th>" for name in header)}</tr>'
    for row in rows[1:] if header else rows:
        yield f"<tr>{''.join(_write_cell(text, of) for text, of in zip_longest(row, names, fillvalue=''))}</tr>"
    yield "</table>"


def _write_cell(text: str, of: str) -> str:
    return f'<td data-of="{escape(of)}">{mark_up(text)}</td>' if of else f"<td>{mark_up(text)}</td>"


def write_source(place: Place) -> Iterator[str]:
    """Write the lines around a place, if its file can be read."""
    if "\0" in place.file:  # no name of a file
        return
    numbers = range(max(1, place.line - _CONTEXT_LINES), place.line + _CONTEXT_LINES + 1)
    lines: List[Tuple[int, str]] = [(number, linecache.getline(place.file, number).rstrip()) for number in numbers]
    if not linecache.getline(place.file, place.line).strip():
        return
    width = len(str(numbers[-1]))
    written = []
    for number, text in lines:
        if number > place.line and not any(later for _number, later in lines[lines.index((number, text)) :]):
            break
        shown = _mark_span(text, place) if number == place.line else escape(text)
        row = f'<span class="number">{number:>{width}}  </span>{shown}'
        written.append(f'<span class="here">{row}</span>' if number == place.line else f"{row}\n")
    yield f"<pre>{''.join(written)}</pre>"


def mark_up(text: str) -> str:
    """Write text as HTML, with backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


def _mark_span(text: str, place: Place) -> str:
    if place.column is None or not 1 <= place.column <= len(text):
        return escape(text)
    first = place.column - 1
    is_one_line = place.end_line in (None, place.line) and place.end_column is not None
    end = place.end_column - 1 if is_one_line and place.end_column is not None else len(text)
    return f"{escape(text[:first])}<mark>{escape(text[first:end])}</mark>{escape(text[end:])}"
