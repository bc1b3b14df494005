"""Comments in a program that allow what was found: `# porting: allow host-read`, on the line or on the line above.

A comment that stands alone is for the next line of code; one behind code is for the statement that it stands in.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Sequence, Set, Tuple

from porting.diagnostics import Finding, Place, find_code, join_names
from porting.diagnostics.codes import suggest_names

__all__ = ["Allowance", "divide_findings", "list_allowances"]

_COMMENT = re.compile(r"#\s*porting:\s*allow\b[ \t:]*(?P<names>[\w-]+(?:\s*,\s*[\w-]+)*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Allowance:
    """A name in a comment that allows something: where it stands, and the line of code that it is for."""

    name: str
    place: Place
    line: int

    @property
    def code(self) -> str:
        """The code that the name stands for; empty for a name that stands for none."""
        found = find_code(self.name)
        return "" if found is None else found.code


def list_allowances(text: str, file: str) -> List[Allowance]:
    """List what the comments of a program allow; `text` is its source, which need not be a program that parses.

    >>> [(found.name, found.line) for found in list_allowances("run()  # porting: allow host-read, L001", "a.py")]
    [('host-read', 1), ('L001', 1)]
    """
    if _COMMENT.search(text) is None:
        return []
    comments = {line: (column, comment) for line, column, comment in _iter_comments(text)}
    lines = text.splitlines()
    found: List[Allowance] = []
    for line, (column, comment) in comments.items():
        match = _COMMENT.search(comment)
        if match is None:
            continue
        meant = line if lines[line - 1][:column].strip() else _find_next_code(lines, line)
        named = [name for name in re.split(r"[,\s]+", match["names"] or "") if name]
        first = column + match.start() + 1
        place = Place(file, line, first, line, first + len(match[0].rstrip()))
        found.extend(Allowance(name, place, meant) for name in named or [""])
    return found


def divide_findings(
    findings: Iterable[Finding], allowances: Mapping[str, Sequence[Allowance]], *, is_judged: Callable[[str], bool]
) -> Tuple[List[Finding], List[Finding]]:
    """Divide findings into those that stay and those that comments allow; `allowances` are those of each file.

    Among those that stay is a note for each comment that allows nothing: a name that is no code, or one whose code
    `is_judged`, because it was looked for, and was not found there.
    """
    by_line: Dict[Tuple[str, int, str], List[Allowance]] = {}
    for file, of_file in allowances.items():
        for allowance in of_file:
            by_line.setdefault((file, allowance.line, allowance.code), []).append(allowance)
    stay: List[Finding] = []
    allowed: List[Finding] = []
    used: Set[Allowance] = set()
    for finding in findings:
        matching = [one for key in _iter_keys(finding) for one in by_line.get(key, ())]
        used.update(matching)
        (allowed if matching else stay).append(finding)
    unused = [one for of_file in allowances.values() for one in of_file if one not in used]
    stay += [_note_unused(one) for one in unused if not one.code or is_judged(one.code)]
    return stay, allowed


def _iter_comments(text: str) -> Iterator[Tuple[int, int, str]]:
    """List line, column from 0 and text of each comment; of what is no Python, what looks like one."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):  # an IndentationError is one, too
        for line, content in enumerate(text.splitlines(), 1):
            match = _COMMENT.search(content)
            if match is not None:
                yield line, match.start(), content[match.start() :]
        return
    for token in tokens:
        if token.type == tokenize.COMMENT:
            yield (*token.start, token.string)


def _find_next_code(lines: Sequence[str], line: int) -> int:
    """Find the line of code that follows a comment, past other comments and blank lines."""
    following = enumerate(map(str.strip, lines[line:]), start=line + 1)
    return next((number for number, content in following if content and not content.startswith("#")), line + 1)


def _iter_keys(finding: Finding) -> Iterator[Tuple[str, int, str]]:
    place = finding.place
    if place is not None:
        for line in range(place.line, max(place.end_line or 0, place.line) + 1):
            yield place.file, line, finding.code


def _note_unused(allowance: Allowance) -> Finding:
    if allowance.code:
        message, help = f"a comment allows {allowance.name}, which was not found", "remove the name, or the comment"
    elif not allowance.name:
        message, help = "a comment allows nothing by name", "name what it allows: `# porting: allow host-read`"
    else:
        near = suggest_names(allowance.name)
        message = f"a comment allows {allowance.name!r}, which is no code or slug"
        help = f"did you mean {join_names(near)}?" if near else "`porting explain --list` lists all"
    return Finding("X006", message, place=allowance.place, label="allows nothing", help=help)
