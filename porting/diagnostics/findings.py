"""Define a finding, one fault or fact about a port: as data, as text with the line, or as a workflow's annotation."""

from __future__ import annotations

import json
import linecache
import os
import unicodedata
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Iterable, Iterator, Optional, Sequence, Tuple, Union

from porting.diagnostics.codes import CODES, Severity
from porting.diagnostics.notebooks import name_cell
from porting.diagnostics.places import Place

__all__ = ["FORMATS", "Finding", "render", "render_all"]


@dataclass(frozen=True)
class Finding:
    """A fault or a fact about a port: its place, and what to do about it.

    `message` states the fault and `label` the fault of the very span at `place`; `notes` are facts and `help` the
    actions that correct it; a single one may be given as a string. Message and severity default to the code's.
    An unknown code is a ValueError.

    >>> finding = Finding("L001", help="wrap the model: `to_ipu(model, criterion)`")
    >>> finding.slug, finding.message, finding.help
    ('loss-outside-forward', 'the loss is computed outside `forward`', ('wrap the model: `to_ipu(model, criterion)`',))
    """

    code: str
    message: Optional[str] = None
    place: Optional[Place] = None
    label: str = ""
    notes: Union[str, Sequence[str]] = ()
    help: Union[str, Sequence[str]] = ()
    severity: Optional[Severity] = None
    is_guess: bool = False
    """Whether it rests on a guess: it is shown, but changes no exit status."""

    def __post_init__(self) -> None:
        """Fill in the defaults of the code's table and make the lines tuples."""
        if self.code not in CODES:
            raise ValueError(f"unknown code {self.code!r}; porting.diagnostics.CODES lists the known ones")
        code = CODES[self.code]
        object.__setattr__(self, "message", code.title if self.message is None else self.message)
        object.__setattr__(self, "severity", code.severity if self.severity is None else Severity(self.severity))
        object.__setattr__(self, "notes", _make_lines(self.notes))
        object.__setattr__(self, "help", _make_lines(self.help))

    @property
    def slug(self) -> str:
        """The bad thing's name, as in `loss-outside-forward`."""
        return CODES[self.code].slug

    @property
    def title(self) -> str:
        """The message that findings of this code have by default."""
        return CODES[self.code].title

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON.

        >>> Finding("D001").to_dict()["severity"]
        'error'
        """
        return {
            "code": self.code,
            "slug": self.slug,
            "severity": Severity(self.severity).value,
            "message": self.message,
            "place": None if self.place is None else asdict(self.place),
            "label": self.label,
            "notes": list(self.notes),
            "help": list(self.help),
            "is_guess": self.is_guess,
        }


def _make_lines(text: Union[str, Sequence[str]]) -> Tuple[str, ...]:
    return (text,) if isinstance(text, str) else tuple(text)


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
    source = None  # also where the file or the line is not there, or the line is blank
    if place:
        linecache.checkcache(place.file)
        source = linecache.getline(place.file, place.line).rstrip() or None
    gutter = " " * (len(str(place.line)) if place else 1)
    yield f"{Severity(finding.severity).value}[{finding.code}]: {finding.message}"
    if place:
        yield f" {gutter}--> {replace(place, file=_shorten_path(place.file))}"
        yield f" {gutter} |"
    if place and source is not None:
        first, end = _find_marked_span(source, place)
        mark = " " * _measure_width(source[:first]) + "^" * max(1, _measure_width(source[first:end]))
        yield f" {place.line} | {_make_displayable(source)}".rstrip()
        yield f" {gutter} | {mark} {finding.label}".rstrip()
        yield f" {gutter} |"
    notes = list(finding.notes)
    if finding.label and source is None:
        notes.insert(0, finding.label)
    more = [f"porting explain {finding.code} ({finding.slug})"]
    for word, texts in (("note", notes), ("help", finding.help), ("more", more)):
        prefix = f" {gutter} = {word}: "
        for text in texts:
            first_line, *others = text.splitlines() or [""]
            yield prefix + first_line
            yield from ((" " * len(prefix) + line).rstrip() for line in others)


def _shorten_path(file: str) -> str:
    """Shorten the name of a file below the current folder, as editors and annotations want it; name a cell."""
    folder = os.getcwd() + os.sep
    return name_cell(file) or (file[len(folder) :] if file.startswith(folder) else file)


def _find_marked_span(source: str, place: Place) -> Tuple[int, int]:
    """Choose the characters to underline, as a slice of the line: all of its code where the columns are not known."""
    if place.column is None or not 1 <= place.column <= len(source):
        return len(source) - len(source.lstrip()), len(source)
    first = place.column - 1
    if place.end_line not in (None, place.line):
        return first, len(source)
    end = first + 1 if place.end_column is None else place.end_column - 1
    return first, min(max(end, first + 1), len(source))


def _make_displayable(text: str) -> str:
    """Replace tabs by blanks, and control characters by a mark."""
    shown = (
        "\N{REPLACEMENT CHARACTER}" if letter != "\t" and unicodedata.category(letter) in _UNSHOWN else letter
        for letter in text
    )
    return "".join(shown).replace("\t", _TAB)


def _measure_width(text: str) -> int:
    """Count the terminal's columns: a tab takes four, an East Asian wide character two, a combining one none."""
    spacing = [letter for letter in _make_displayable(text) if unicodedata.category(letter) not in ("Mn", "Me")]
    return len(spacing) + sum(unicodedata.east_asian_width(letter) in ("W", "F") for letter in spacing)


_GITHUB_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def _write_github_annotation(finding: Finding) -> str:
    """Write a workflow command; its escapes are those of GitHub's own toolkit (`@actions/core`, command.ts)."""
    place = finding.place
    known: Dict[str, Any] = {"title": f"{finding.code} {finding.slug}"}
    if place:
        known = {
            "file": _shorten_path(place.file),
            "line": place.line,
            "col": place.column,
            "endLine": place.end_line,
            "endColumn": place.end_column,
            **known,
        }
    properties = [
        f"{name}={_escape_github_data(str(value)).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in known.items()
        if value is not None
    ]
    body = [str(finding.message), finding.label, *finding.notes, *(f"help: {text}" for text in finding.help)]
    text = _escape_github_data("\n".join(line for line in body if line))
    return f"::{_GITHUB_COMMANDS[Severity(finding.severity)]} {','.join(properties)}::{text}"


def _escape_github_data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
