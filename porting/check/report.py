"""Show what a preflight has found, as text and as plain data, with what it looked at.

`porting.Report` is the class.
"""

from __future__ import annotations

import shutil
import textwrap
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, Sequence, Tuple

from porting.check.coverage import Coverage
from porting.check.port_order import PortNeed, list_needs
from porting.diagnostics import CODES, Finding, Place, Severity, join_names, render_all, say_number
from porting.support.late_pages import show_as_page

__all__ = ["Report", "count_severities", "sort_findings"]

_FORMAT_VERSION = 1
_MOST_PLACES = 4
# a report of more findings fills more than a screen, and of many more nobody scrolls to the end first
_LONG, _VERY_LONG = 5, 20
_LEAST_WIDTH, _USUAL_WIDTH, _MOST_WIDTH = 80, 100, 120


@dataclass(frozen=True)
class Report:
    """What stands between a program and an IPU; as a string it is the text that `porting check` prints.

    `program` is what was checked, by the name that it was given. `looked_at` says of what the findings are: files,
    a captured step, a loader. `is_ported` is False for a plain program, whose findings are what its port needs.
    `num_allowed` findings were allowed by comments in the source and `num_known` by a baseline; they are not among
    `findings`. `num_obsolete` entries of the baseline were not found any more. `coverage` is what the findings are of:
    a report is clean only where nothing of the program was left out.

    >>> report = Report([Finding("L002"), Finding("B010")], program="train.py")
    >>> report.is_clean, report.codes
    (False, ('L002', 'B010'))
    """

    findings: Sequence[Finding] = ()
    program: str = "the model"
    looked_at: Sequence[str] = ()
    is_ported: bool = True
    num_allowed: int = 0
    num_known: int = 0
    num_obsolete: int = 0
    coverage: Coverage = Coverage()
    failures: Sequence[Finding] = ()
    """Why programs that were named could not be looked at."""
    facts: Sequence[str] = field(default=())
    """What was measured on the way, a sentence each, such as the largest activation."""

    def __post_init__(self) -> None:
        """Sort the findings by file and line, and make all sequences tuples."""
        object.__setattr__(self, "findings", sort_findings(self.findings))
        object.__setattr__(self, "looked_at", tuple(self.looked_at))
        object.__setattr__(self, "facts", tuple(self.facts))
        object.__setattr__(self, "failures", tuple(self.failures))

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found, and nothing left out, where there was something to find."""
        return not self.standing and not self.failures and self.coverage.is_whole and self.coverage.has_training

    @property
    def standing(self) -> Tuple[Finding, ...]:
        """The findings that stand between the program and an IPU: not those of what was not read, and no guesses."""
        return tuple(finding for finding in self.findings if finding.code != "X024" and not finding.is_guess)

    @property
    def num_failed(self) -> int:
        """How many programs could not be loaded; in others there was nothing to judge."""
        return sum(failure.code in ("E020", "E021", "E022") for failure in self.failures)

    @property
    def codes(self) -> Tuple[str, ...]:
        """The codes that were found, each once, in the order of the findings."""
        return tuple(dict.fromkeys(finding.code for finding in self.findings))

    @property
    def needs(self) -> Tuple[PortNeed, ...]:
        """What a port of a plain program needs, in the order to do it; empty for a program that is ported."""
        return () if self.is_ported else list_needs(self.standing)

    @property
    def summary(self) -> str:
        """One line: how many of what stand between the program and an IPU."""
        end = f" ({', '.join(self.looked_at)})" if self.looked_at else ""
        standing = self.standing
        if not standing and not self.coverage.has_training:
            return f"nothing that trains a model was found in {self.program}{end}{self._tell_left_out()}"
        if not standing:
            nothing = "nothing new" if self.num_known else "nothing"
            read = "" if self.coverage.is_whole and not self.num_failed else " in what could be read"
            told = f"{nothing} was found{read} that stands between {self.program} and an IPU{end}"
            return told + self._tell_left_out()
        verb = "stands" if len(standing) == 1 else "stand"
        counts = Counter(finding.code for finding in standing)
        kinds = ", ".join(f"{number} {CODES[code].slug}" for code, number in counts.most_common())
        numbers = count_severities(standing)
        return f"{numbers} {verb} between {self.program} and an IPU{end}: {kinds}{self._tell_left_out()}"

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON."""
        return {
            "version": _FORMAT_VERSION,
            "program": self.program,
            "looked_at": list(self.looked_at),
            "is_ported": self.is_ported,
            "is_clean": self.is_clean,
            "summary": self.summary,
            "counts": {
                "by_severity": Counter(Severity(finding.severity).value for finding in self.findings),
                "by_code": Counter(finding.code for finding in self.findings),
                "allowed": self.num_allowed,
                "known": self.num_known,
                "obsolete": self.num_obsolete,
            },
            "findings": [finding.to_dict() for finding in self.findings],
            "failures": [failure.to_dict() for failure in self.failures],
            "needs": [need.to_dict() for need in self.needs],
            "coverage": self.coverage.to_dict(),
            "facts": list(self.facts),
        }

    def __str__(self) -> str:
        return "\n".join(self._write_lines())

    _repr_html_ = show_as_page("porting.check.html_page:write_report_page")

    def _write_lines(self) -> Iterator[str]:
        num_standing = len(self.standing)
        if num_standing > _VERY_LONG:
            yield from (*_write_in_short(self.standing), "")
        for file, found in groupby(self.findings, key=_name_file):
            together = list(found)
            yield f"{file or 'without a place'}: {count_severities(together)}"
            yield ""
            yield render_all(together)
            yield ""
        if self.is_ported and num_standing > _LONG:
            yield from (*_write_in_short(self.standing), "")
        if self.needs:
            yield f"what a port of {self.program} needs, in this order:"
            for number, need in enumerate(self.needs, 1):
                yield from _write_need(number, need)
            yield ""
        if self.facts:
            yield from self.facts
            yield ""
        yield self.summary

    def _tell_left_out(self) -> str:
        gaps = f"; not read: {self.coverage.gaps}" if self.coverage.gaps else ""
        num_guesses = sum(finding.is_guess for finding in self.findings)
        left_out = [
            text
            for number, text in (
                (num_guesses, f"{num_guesses} by guess alone"),
                (self.num_failed, f"{self.num_failed} could not be looked at"),
                (self.num_allowed, f"{self.num_allowed} allowed in the source"),
                (self.num_known, f"{self.num_known} in the baseline"),
                (self.num_obsolete, f"{self.num_obsolete} of the baseline are gone: write it again"),
            )
            if number
        ]
        return f"{gaps}; {', '.join(left_out)}" if left_out else gaps


def sort_findings(findings: Iterable[Finding]) -> Tuple[Finding, ...]:
    """Sort findings by file, line and column, and leave out those that say the same of the same place again.

    Files stay in the order of their first findings; findings without a place come last.

    >>> [finding.code for finding in sort_findings([Finding("B010"), Finding("B010"), Finding("L002")])]
    ['B010', 'L002']
    """
    once = list({(f.code, f.place, f.message): f for f in reversed(list(findings))}.values())[::-1]
    files = {file: number for number, file in enumerate(dict.fromkeys(map(_name_file, once)))}

    def rank(finding: Finding) -> Tuple[bool, int, int, int]:
        place = finding.place
        where = (0, 0) if place is None else (place.line, place.column or 0)
        return (place is None, files[_name_file(finding)], *where)

    return tuple(sorted(once, key=rank))


def count_severities(findings: Sequence[Finding]) -> str:
    """Say how many findings of each severity there are.

    >>> count_severities([Finding("L002"), Finding("B006"), Finding("B006")])
    '1 error and 2 warnings'
    """
    counts = Counter(Severity(finding.severity) for finding in findings)
    texts = [say_number(counts[severity], severity.value) for severity in Severity if counts[severity]]
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def _name_file(finding: Finding) -> str:
    return finding.place.file if finding.place is not None else ""


def _write_in_short(findings: Sequence[Finding]) -> Iterator[str]:
    """List the codes of findings from the worst on, a line each, with their places."""
    severities = list(Severity)
    ranked = sorted(findings, key=lambda finding: severities.index(Severity(finding.severity)))
    yield f"{count_severities(findings)}, in short:"
    for code in dict.fromkeys(finding.code for finding in ranked):
        found = [finding for finding in findings if finding.code == code]
        places = _name_places([finding.place for finding in found if finding.place is not None])
        yield f"  {len(found):>3} {code} {found[0].slug}" + (f" at {places}" if places else "")


def _write_need(number: int, need: PortNeed) -> Iterator[str]:
    """Write what a port needs, and below it code, places and recipe, in lines that a terminal has room for."""
    width = min(max(shutil.get_terminal_size((_USUAL_WIDTH, 24)).columns, _LEAST_WIDTH), _MOST_WIDTH)
    indent = " " * 5
    wrap = partial(textwrap.wrap, width=width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    yield from wrap(f"{number:>2}.  {need.action}")
    yield from wrap(f"{indent}{need.code} at {_name_places(need.places)}" if need.places else indent + need.code)
    if need.recipe:
        yield f"{indent}{need.recipe}"


def _name_places(places: Sequence[Place]) -> str:
    """Name the first places, each file once: `train.py:12:5, 19:5, data.py:3:1`."""
    names = []
    file = ""
    for place in places:
        name = str(place)
        names.append(name[len(file) + 1 :] if place.file == file else name)
        file = place.file
    return join_names(names, most=_MOST_PLACES, quote="")
