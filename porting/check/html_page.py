"""A report as one HTML page that needs nothing else: findings with their source, each kind with its page."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import Iterator

from porting.check.report import Report, count_severities
from porting.diagnostics import CODES, Finding, Severity, join_names
from porting.diagnostics.codes import read_page
from porting.support.html_pages import mark_up, write_page, write_source

__all__ = ["write_report_page"]

_MOST_PLACES = 12

_STYLE = """
.finding.error { border-left: 4px solid #b3261e; } .finding.warning { border-left: 4px solid #b26a00; }
.finding.note { border-left: 4px solid #3b6ea8; }
.finding { padding: .1rem 1rem .3rem; margin: 1rem 0; background: var(--block); }
.finding h3 { font-size: 1rem; margin: .5rem 0; } .finding ul { margin: .4rem 0; padding-left: 1.2rem; }
.badge { color: #fff; border-radius: 3px; padding: .05rem .45rem; font-size: 12px; margin-right: .4rem; }
.error .badge { background: #b3261e; } .warning .badge { background: #b26a00; } .note .badge { background: #3b6ea8; }
pre { margin: .4rem 0; } .finding pre { background: var(--page); }
.needs td, .needs th { text-align: left; white-space: normal; vertical-align: top; }
@media print { details { display: none; } }
"""


def write_report_page(report: Report) -> str:
    """Write the page of a report."""
    return write_page(f"porting check {report.program}", _write_body(report), style=_STYLE)


def _write_fact(fact: str) -> str:
    """Write what was measured: a sentence, or a line and the table below it."""
    first, _, table = fact.partition("\n")
    return f'<p class="quiet">{mark_up(first)}</p>' + (f"<pre>{escape(table)}</pre>" if table else "")


def _write_body(report: Report) -> Iterator[str]:
    yield f"<h1>Between <code>{escape(report.program)}</code> and an IPU</h1>"
    yield f'<p class="verdict {_find_worst(report)}">{mark_up(report.summary)}</p>'
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
        title = f"{code} {escape(CODES[code].slug)}: {mark_up(CODES[code].title)}"
        yield f'<details id="{code}"><summary>{title}</summary>'
        yield f"<pre>{escape(read_page(code))}</pre></details>"


def _find_worst(report: Report) -> str:
    """Find the severity of the worst that stands; what was left out is no better than a warning."""
    if report.is_clean:
        return "ok"
    severities = {Severity(finding.severity) for finding in report.standing}
    return next((severity.value for severity in Severity if severity in severities), Severity.WARNING.value)


def _write_needs(report: Report) -> Iterator[str]:
    yield "<h2>What a port needs, in this order</h2>"
    header = "".join(f"<th>{name}</th>" for name in ("", "what", "code", "where", "shown by"))
    yield f'<table class="needs stacked"><tr class="head">{header}</tr>'
    for number, need in enumerate(report.needs, 1):
        places = escape(join_names(need.places, most=_MOST_PLACES, quote=""))
        recipe = f"<code>{escape(need.recipe)}</code>" if need.recipe else ""
        link = f'<a href="#{need.code}">{need.code}</a>'
        cells = (f"{number}.", mark_up(need.action), link, places, recipe)
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
    yield "</table>"


def _write_finding(finding: Finding) -> Iterator[str]:
    severity = Severity(finding.severity).value
    yield f'<div class="finding {severity}"><h3><span class="badge">{severity}</span>{mark_up(str(finding.message))} '
    yield f'<a class="quiet" href="#{finding.code}">{finding.code} {escape(finding.slug)}</a></h3>'
    if finding.place is not None:
        yield f'<div class="quiet">{escape(str(finding.place))}</div>'
        yield from write_source(finding.place)
    texts = [(finding.label, ""), *((note, "") for note in finding.notes), *((text, "help: ") for text in finding.help)]
    items = [f"<li>{word}{mark_up(text)}</li>" for text, word in texts if text]
    yield f"<ul>{''.join(items)}</ul></div>" if items else "</div>"
