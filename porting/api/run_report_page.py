"""Write the report of a port as one page of HTML that needs nothing else: what ran, its executors, their time."""

from __future__ import annotations

from html import escape
from typing import Iterator

from ..diagnostics import render_all
from ..support.html_pages import write_page, write_table
from .run_report import RunReport

__all__ = ["write_run_page"]


def write_run_page(report: RunReport) -> str:
    """Write the page of a report."""
    return write_page(f"a port on {report.device}", _write_body(report))


def _write_body(report: RunReport) -> Iterator[str]:
    yield from write_table(report.list_facts(), kind="facts")
    yield "<h2>Executors</h2>"
    yield from write_table(report.list_executors())
    seconds = report.list_seconds()
    if len(seconds) > 1:
        yield "<h2>Where the time went</h2>"
        yield from write_table(seconds)
    if report.findings:
        yield f"<h2>Findings</h2><pre>{escape(render_all(report.findings))}</pre>"
