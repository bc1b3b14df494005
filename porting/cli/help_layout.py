"""Lay out the help of a verb: its text stays as it was written, but for lines that are wider than a terminal."""

from __future__ import annotations

import argparse
import re
import textwrap
from itertools import groupby
from typing import List

__all__ = ["HELP_WIDTH", "HelpLayout", "fit_lines"]

HELP_WIDTH = 80


class HelpLayout(argparse.RawDescriptionHelpFormatter):
    """The formatter of all verbs."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        # private, and the one place that argparse has for it
        return fit_lines(super()._fill_text(text, width, indent))


def fit_lines(text: str) -> str:
    """Wrap what is wider than `HELP_WIDTH`: whole paragraphs, and single lines of lists under their last column.

    >>> print(fit_lines("  first   " + "word " * 15).replace("word word word ", "... "))
      first   ... ... ... ... word word
              word
    """
    lines = []
    for is_prose, group in groupby(text.splitlines(), key=lambda line: bool(line) and not line[0].isspace()):
        paragraph = list(group)
        if is_prose and any(len(line) > HELP_WIDTH for line in paragraph):
            lines += textwrap.wrap(" ".join(paragraph), HELP_WIDTH, break_on_hyphens=False)
        else:
            lines += [part for line in paragraph for part in _wrap_item(line)]
    return "\n".join(lines) + "\n" * text.endswith("\n")


def _wrap_item(line: str) -> List[str]:
    if len(line) <= HELP_WIDTH:
        return [line]
    column = re.match(r"\s*(?:\S+(?: \S+)*\s{2,})?", line)
    indent = " " * (column.end() if column is not None else 0)
    return textwrap.wrap(line, HELP_WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)
