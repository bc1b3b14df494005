"""Text is shown on a terminal with findings and verdicts in colours, and long lines wrapped to its width.

Files and pipes get the plain text, which programs read.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from typing import Iterator, Mapping, Optional, TextIO

__all__ = ["find_width", "fit", "has_colours", "paint", "show"]

_CODES: Mapping[str, str] = {"red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36", "bold": "1"}
_LEAST_WIDTH = 40

_SEVERITIES = {"error": "red", "warning": "yellow", "note": "cyan"}
_HEAD = re.compile(r"(error|warning|note)(\[[A-Z]\d+\]: )(.*)")
_CODE = re.compile(r"( +(?:-->|(?:\d+ )?\|))(.*)")
_START = re.compile(r" *(?:= (?:note|help|more): )?")
_MARK = re.compile(r"\^.*")
# two blanks part the columns of a table; only the last one has sentences
_COLUMNS = re.compile(r".*\S {2,}(?=\S)")
_LEAST_COLUMN = 16
_VERDICTS = {
    "green": re.compile(r"(?:ok|PASS|fits)\b"),
    "red": re.compile(r"(?:FAILED|FAIL|does not fit)\b"),
    "yellow": re.compile(r"(?:CHAOTIC|INCOMPLETE|tight|outside the evidence)\b"),
}


def has_colours(stream: TextIO) -> bool:
    """Tell whether a stream shows colours: a terminal does, unless NO_COLOR is set; FORCE_COLOR sets them anywhere.

    https://no-color.org and https://force-color.org say so of any value but an empty one.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def find_width(stream: TextIO) -> Optional[int]:
    """Return how many columns the terminal of a stream has; None where there is no terminal."""
    return max(shutil.get_terminal_size().columns, _LEAST_WIDTH) if stream.isatty() else None


def paint(text: str, colour: str) -> str:
    r"""Return `text` in a colour.

    >>> paint("no", "red")
    '\x1b[31mno\x1b[0m'
    """
    return f"\033[{_CODES[colour]}m{text}\033[0m"


def show(text: object, stream: Optional[TextIO] = None) -> None:
    """Write lines to a stream, the standard output by default, as its reader can take them."""
    stream = sys.stdout if stream is None else stream
    stream.write(fit(str(text), stream) + "\n")
    stream.flush()


def fit(text: str, stream: TextIO) -> str:
    """Return lines as the reader of a stream can take them: wrapped and in colours, or as they are."""
    width, is_coloured = find_width(stream), has_colours(stream)
    rows = [row for line in text.split("\n") for row in ([line] if width is None else _wrap_line(line, width))]
    return "\n".join(_paint_line(row) if is_coloured else row for row in rows)


def _wrap_line(line: str, width: int) -> Iterator[str]:
    """Wrap a sentence, and the last column of a row of a table below itself; code beside a gutter stays as it is."""
    start = _START.match(line)
    indent = len(start[0]) if start else 0
    columns = _COLUMNS.match(line, indent)
    indent = columns.end() if columns else indent
    has_room = columns is None or indent <= width - _LEAST_COLUMN
    if len(line) <= width or _CODE.match(line) or not has_room or not line[indent:]:
        yield line
        return
    yield from textwrap.wrap(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def _paint_line(line: str) -> str:
    head, code = _HEAD.match(line), _CODE.match(line)
    if head:
        return paint(head[1] + head[2], _SEVERITIES[head[1]]) + paint(head[3], "bold")
    if code:
        is_mark = code[1].strip() == "|"
        return paint(code[1], "blue") + (_MARK.sub(lambda mark: paint(mark[0], "red"), code[2]) if is_mark else code[2])
    for colour, verdict in _VERDICTS.items():
        word = verdict.match(line)
        if word:
            return paint(word[0], colour) + line[word.end() :]
    start = _START.match(line)
    return paint(start[0], "blue") + line[start.end() :] if start and start[0].strip() else line
