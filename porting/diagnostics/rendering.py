"""Rendering of findings: as text with the source line, as JSON, and as annotations of a GitHub workflow."""

from __future__ import annotations

import json
import linecache
import os
import unicodedata
from typing import Iterable, Iterator, List, Optional, Tuple

from porting.diagnostics.codes import Severity
from porting.diagnostics.findings import Finding
from porting.diagnostics.places import Place

__all__ = ["FORMATS", "render", "render_all"]

FORMATS = ("text", "json", "github")
"""The formats that `render` knows."""

_TAB = "    "

# Categories of characters that would act on the terminal or hide from the reader: escapes, direction marks, line ends.
_UNSHOWN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def render(finding: Finding, format: str = "text") -> str:
    """Render one finding, without a line end; the file of its place is shown relative to the current folder.

    >>> print(render(Finding("D001", help="set PORTING_DEVICE=sim")))
    error[D001]: no IPU was found
       = help: set PORTING_DEVICE=sim
       = more: porting explain D001 (no-ipu-found)
    """
    if format == "text":
        return "\n".join(_write_text_lines(finding))
    if format == "json":
        return json.dumps(finding.to_dict(), ensure_ascii=False)
    if format == "github":
        return _write_github_annotation(finding)
    raise ValueError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")


def render_all(findings: Iterable[Finding], format: str = "text") -> str:
    """Render several findings: texts parted by blank lines, one JSON list, or one annotation a line.

    >>> render_all([], format="json")
    '[]'
    """
    if format == "json":
        return json.dumps([finding.to_dict() for finding in findings], ensure_ascii=False, indent=2)
    return ("\n\n" if format == "text" else "\n").join(render(finding, format) for finding in findings)


def _write_text_lines(finding: Finding) -> Iterator[str]:
    place = finding.place
    source = _read_source_line(place) if place else None
    gutter = " " * (len(str(place.line)) if place else 1)
    yield f"{Severity(finding.severity).value}[{finding.code}]: {finding.message}"
    if place:
        yield f" {gutter}--> {_show_place(place)}"
        yield f" {gutter} |"
    if place and source is not None:
        yield f" {place.line} | {_display_text(source)}".rstrip()
        yield f" {gutter} | {_underline_span(source, place)} {finding.label}".rstrip()
        yield f" {gutter} |"
    notes = list(finding.notes)
    if finding.label and source is None:
        notes.insert(0, finding.label)
    more = [f"porting explain {finding.code} ({finding.slug})"]
    for word, texts in (("note", notes), ("help", finding.help), ("more", more)):
        for text in texts:
            yield from _hang_lines(f" {gutter} = {word}: ", text)


def _read_source_line(place: Place) -> Optional[str]:
    """Read the line of a place; None when the file or the line is not there or the line is blank."""
    linecache.checkcache(place.file)
    line = linecache.getline(place.file, place.line).rstrip()
    return line or None


def _show_place(place: Place) -> str:
    return str(Place(_show_file(place.file), place.line, place.column))


def _show_file(file: str) -> str:
    """Shorten the name of a file below the current folder, the form that editors and annotations want."""
    folder = os.getcwd() + os.sep
    return file[len(folder) :] if file.startswith(folder) else file


def _underline_span(source: str, place: Place) -> str:
    first, end = _find_marked_span(source, place)
    return " " * _measure_width(source[:first]) + "^" * max(1, _measure_width(source[first:end]))


def _find_marked_span(source: str, place: Place) -> Tuple[int, int]:
    """Choose the characters to underline, as a slice of the line: all of its code where the columns are not known."""
    if place.column is None or not 1 <= place.column <= len(source):
        return len(source) - len(source.lstrip()), len(source)
    first = place.column - 1
    if place.end_line not in (None, place.line):
        return first, len(source)
    end = first + 1 if place.end_column is None else place.end_column - 1
    return first, min(max(end, first + 1), len(source))


def _display_text(text: str) -> str:
    return "".join(_display_character(character) for character in text)


def _display_character(character: str) -> str:
    if character == "\t":
        return _TAB
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _UNSHOWN else character


def _measure_width(text: str) -> int:
    """Count the terminal's columns: a tab takes four, an East Asian wide character two, a combining one none."""
    return sum(_measure_character(character) for character in _display_text(text))


def _measure_character(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def _hang_lines(prefix: str, text: str) -> Iterator[str]:
    first, *others = text.splitlines() or [""]
    yield prefix + first
    for line in others:
        yield (" " * len(prefix) + line).rstrip()


_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def _write_github_annotation(finding: Finding) -> str:
    """Write a workflow command; its escapes are those of GitHub's own toolkit (`@actions/core`, command.ts)."""
    command = _GITHUB_COMMANDS[Severity(finding.severity)]
    properties = _list_github_place(finding.place) if finding.place else []
    properties.append(f"title={_escape_github_property(f'{finding.code} {finding.slug}')}")
    body = [str(finding.message), finding.label, *finding.notes, *(f"help: {text}" for text in finding.help)]
    return f"::{command} {','.join(properties)}::{_escape_github_data(chr(10).join(line for line in body if line))}"


def _list_github_place(place: Place) -> List[str]:
    numbers = {
        "line": place.line,
        "col": place.column,
        "endLine": place.end_line,
        "endColumn": place.end_column,
    }
    file = [f"file={_escape_github_property(_show_file(place.file))}"]
    return file + [f"{name}={number}" for name, number in numbers.items() if number is not None]


def _escape_github_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_github_property(text: str) -> str:
    return _escape_github_data(text).replace(":", "%3A").replace(",", "%2C")
