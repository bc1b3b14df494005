"""The page that lists every code is made from the table of codes.

After a change of that table, `python -m tests.docs.codes_page` writes the page again.
"""

from __future__ import annotations

from pathlib import Path

from porting.diagnostics import CODES
from porting.diagnostics.codes import FAMILIES, Code

PAGE = Path(__file__).parents[2] / "docs" / "codes.md"
INTRODUCTION = f"""# Codes

Every finding has a code. This page lists all {len(CODES)}; `porting explain C001` prints the page of one.

The letter says what a finding is about, and which class an error has: `C001` is raised as a `CaptureError`, and all
classes are `PortingError`s (`porting/diagnostics/errors.py::PortingError`). An exception that your own `forward` raises
reaches you unchanged. After any error the model can be used as before.

The severity below is the usual one: an error stops the work, a warning tells of a loss, a note is worth knowing.
`python -m tests.docs.codes_page` writes this page from the table in `porting/diagnostics/codes.py`.
"""


def make_page() -> str:
    """Make the page: a table for each letter, in the order of the table of codes."""
    return "\n".join([INTRODUCTION, *map(_make_family, FAMILIES)])


def _make_family(letter: str) -> str:
    rows = [_make_row(code) for code in CODES.values() if code.code[0] == letter]
    head = [f"## {letter}: {FAMILIES[letter]}", "", "| Code | Name | Severity | What was found |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _make_row(code: Code) -> str:
    title = code.title.replace("|", "\\|")
    link = f"[{code.code}](../porting/diagnostics/pages/{code.code}.md)"
    return f"| {link} | {code.slug} | {code.severity.value} | {title} |"


if __name__ == "__main__":
    PAGE.write_text(make_page(), "utf-8")
