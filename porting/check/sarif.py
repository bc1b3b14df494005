"""A report as SARIF 2.1.0, the format in which code hosts and editors read findings.

The standard: https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from typing import Any, Dict, List, Sequence
from urllib.parse import quote

from porting.check.baseline import hash_finding
from porting.check.cells import point_at_file
from porting.check.report import Report
from porting.diagnostics import CODES, Code, Finding, Place, Severity
from porting.diagnostics.codes import FAMILIES, read_page
from porting.version import VERSION

__all__ = ["make_sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def make_sarif(report: Report) -> Dict[str, Any]:
    """Make the SARIF log of a report, as plain values; files are named from the present folder."""
    rules = [CODES[code] for code in sorted(report.codes)]
    indices = {rule.code: index for index, rule in enumerate(rules)}
    run = {
        "tool": {"driver": {"name": "porting", "version": VERSION, "rules": [_describe_rule(rule) for rule in rules]}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not report.failures,
                "toolExecutionNotifications": [
                    {"level": "error", "message": {"text": "\n".join(_list_sentences(failure))}}
                    for failure in report.failures
                ],
            }
        ],
        "results": [
            _describe_result(finding, indices[finding.code], program=report.program) for finding in report.findings
        ],
        "properties": {"summary": report.summary, "coverage": report.coverage.to_dict()},
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _describe_rule(code: Code) -> Dict[str, Any]:
    page = read_page(code.code)
    return {
        "id": code.code,
        "name": "".join(word.title() for word in code.slug.split("-")),
        "shortDescription": {"text": code.title},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": _name_level(code.severity)},
        "properties": {"tags": [code.slug, FAMILIES[code.code[0]]]},
    }


def _describe_result(finding: Finding, index: int, *, program: str) -> Dict[str, Any]:
    fingerprint = hash_finding(finding, Path())
    finding = point_at_file(finding)
    result = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _name_level(finding.severity),
        "message": {"text": "\n".join(_list_sentences(finding))},
        "partialFingerprints": {"portingLine/v1": fingerprint},
    }
    file = program.rpartition(":")[0] or program
    # code hosts refuse a result that is nowhere
    place = Place(file, 1) if finding.place is None and os.path.isfile(file) else finding.place
    if place is not None:
        result["locations"] = [{"physicalLocation": _describe_place(place)}]
    return result


def _name_level(severity: object) -> str:
    """Name the level of a severity: error, warning and note are SARIF's words, too."""
    return Severity(severity).value


def _list_sentences(finding: Finding) -> Sequence[str]:
    label = [finding.label] if finding.label else []
    texts: List[str] = [str(finding.message), *label, *finding.notes, *(f"help: {text}" for text in finding.help)]
    return texts


def _describe_place(place: Place) -> Dict[str, Any]:
    region: Dict[str, Any] = {
        "startLine": place.line,
        "startColumn": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    source = linecache.getline(place.file, place.line).rstrip("\r\n") if place.column is not None else ""
    if source and place.end_line in (None, place.line):
        region["snippet"] = {"text": source}
    return {
        "artifactLocation": _name_artifact(place.file),
        "region": {name: value for name, value in region.items() if value is not None},
    }


def _name_artifact(file: str) -> Dict[str, str]:
    path = os.path.abspath(file)
    inside = os.path.relpath(path, os.getcwd())
    if inside.startswith(os.pardir):
        return {"uri": Path(path).as_uri()}
    return {"uri": quote(inside.replace(os.sep, "/")), "uriBaseId": "%SRCROOT%"}
