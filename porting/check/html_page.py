"""A report as one HTML page that needs nothing else: findings with their source, each kind with its page."""

from __future__ import annotations

import linecache
import re
from html import escape
from itertools import groupby
from typing import Iterator, List, Tuple

from porting.check.report import Report, count_severities
from porting.diagnostics import CODES, Finding, Place, Severity, list_names
from porting.diagnostics.codes import read_page
from porting.support.html_pages import write_page

__all__ = ["write_report_page"]

_CONTEXT_LINES = 2
_MOST_PLACES = 12

_STYLE = """
.error { border-left: 4px solid #b3261e; } .warning { border-left: 4px solid #b26a00; }
.note { border-left: 4px solid #3b6ea8; }
.finding { padding: .1rem 1rem .3rem; margin: 1rem 0; background: #fbfcfd; }
.finding h3 { font-size: 1rem; margin: .5rem 0; } .finding ul { margin: .4rem 0; padding-left: 1.2rem; }
.badge { color: #fff; border-radius: 3px; padding: .05rem .45rem; font-size: 12px; margin-right: .4rem; }
.error .badge { background: #b3261e; } .warning .badge { background: #b26a00; } .note .badge { background: #3b6ea8; }
pre { margin: .4rem 0; line-height: 1.45; } pre .number { color: #97a3ae; user-select: none; }
pre .here { display: block; background: #fff3cd; } pre mark { background: #ffd24d; padding: 0; }
.verdict { font-size: 1.05rem; padding: .7rem 1rem; background: #f5f7f9; border-radius: 4px; }
code { font-size: 90%; background: #f0f3f6; padding: 0 .2em; border-radius: 3px; }
.needs td, .needs th { text-align: left; white-space: normal; vertical-align: top; }
@media print { details { display: none; } }
"""


def write_report_page(report: Report) -> str:
    """Write the page of a report."""
    return write_page(f"porting check {report.program}", _write_body(report), style=_STYLE)


def _write_fact(fact: str) -> str:
    """Write what was measured: a sentence, or a line and the table below it."""
    first, _, table = fact.partition("\n")
    return f'<p class="quiet">{_mark_up(first)}</p>' + (f"<pre>{escape(table)}</pre>" if table else "")


def _write_body(report: Report) -> Iterator[str]:
    yield f"<h1>Between <code>{escape(report.program)}</code> and an IPU</h1>"
    yield f'<p class="verdict {"ok" if report.is_clean else "no"}">{_mark_up(report.summary)}</p>'
    yield from map(_write_fact, report.facts)
    if report.needs:
        yield from _write_needs(report)
    for file, found in groupby(report.findings, key=lambda finding: finding.place.file if finding.place else ""):
        together = list(found)
        yield f"<h2>{escape(file or 'Without a place')}</h2>"
        yield f'<p class="quiet">{count_severities(together)}</p>'
        for finding in together:
            yield from _write_finding(finding)
    if report.findings:
        yield "<h2>The pages of these codes</h2>"
    for code in sorted(report.codes):
        title = f"{code} {escape(CODES[code].slug)}: {_mark_up(CODES[code].title)}"
        yield f'<details id="{code}"><summary>{title}</summary>'
        yield f"<pre>{escape(read_page(code))}</pre></details>"


def _write_needs(report: Report) -> Iterator[str]:
    yield "<h2>What a port needs, in this order</h2>"
    yield '<table class="needs"><tr><th></th><th>what</th><th>code</th><th>where</th><th>shown by</th></tr>'
    for number, need in enumerate(report.needs, 1):
        places = escape(list_names(need.places, most=_MOST_PLACES, quote=""))
        recipe = f"<code>{escape(need.recipe)}</code>" if need.recipe else ""
        link = f'<a href="#{need.code}">{need.code}</a>'
        cells = (f"{number}.", _mark_up(need.action), link, places, recipe)
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _write_finding(finding: Finding) -> Iterator[str]:
    severity = Severity(finding.severity).value
    yield f'<div class="finding {severity}"><h3><span class="badge">{severity}</span>{_mark_up(str(finding.message))} '
    yield f'<a class="quiet" href="#{finding.code}">{finding.code} {escape(finding.slug)}</a></h3>'
    if finding.place is not None:
        yield f'<div class="quiet">{escape(str(finding.place))}</div>'
        yield from _write_source(finding.place)
    texts = [(finding.label, ""), *((note, "") for note in finding.notes), *((text, "help: ") for text in finding.help)]
    items = [f"<li>{word}{_mark_up(text)}</li>" for text, word in texts if text]
    yield f"<ul>{''.join(items)}</ul></div>" if items else "</div>"


def _write_source(place: Place) -> Iterator[str]:
    """Write the lines around a place, where they can be read."""
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


def _mark_span(text: str, place: Place) -> str:
    if place.column is None or not 1 <= place.column <= len(text):
        return escape(text)
    first = place.column - 1
    is_one_line = place.end_line in (None, place.line) and place.end_column is not None
    end = place.end_column - 1 if is_one_line and place.end_column is not None else len(text)
    return f"{escape(text[:first])}<mark>{escape(text[first:end])}</mark>{escape(text[end:])}"


def _mark_up(text: str) -> str:
    """Write text as HTML, with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
