"""The forms in which a report is written: text, JSON, SARIF and annotations of a GitHub workflow."""

from __future__ import annotations

import json

from porting.check.cells import point_at_file
from porting.check.report import Report
from porting.check.sarif import make_sarif
from porting.diagnostics import FORMATS, render_all

__all__ = ["REPORT_FORMATS", "write_report"]

REPORT_FORMATS = (*FORMATS, "sarif")
"""What a report can be written as."""


def write_report(report: Report, format: str = "text") -> str:
    """Write a report in one of `REPORT_FORMATS`, without a line end.

    >>> print(write_report(Report(program="train.py")))
    nothing was found that stands between train.py and an IPU
    """
    if format == "json":
        return json.dumps(report.to_dict(), ensure_ascii=False, indent=2)
    if format == "sarif":
        return json.dumps(make_sarif(report), ensure_ascii=False, indent=2)
    if format == "github":
        return "\n".join(filter(None, [render_all(map(point_at_file, report.findings), "github"), report.summary]))
    return str(report)
