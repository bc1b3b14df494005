"""Places in cells of notebooks, for readers who know files alone: the file, and the cell in words."""

from __future__ import annotations

from dataclasses import replace

from porting.diagnostics import Finding, Place

__all__ = ["point_at_file"]

_MARK = ":cell "


def point_at_file(finding: Finding) -> Finding:
    """Return the finding at the first line of its notebook, with cell and line in its message.

    Findings in files that are no notebooks stay as they are.

    >>> point_at_file(Finding("C001", "a host read", place=Place("a.ipynb:cell 2", 4))).message
    'a host read (in cell 2, line 4)'
    """
    place = finding.place
    if place is None or _MARK not in place.file:
        return finding
    file, _, cell = place.file.rpartition(_MARK)
    message = f"{finding.message} (in cell {cell}, line {place.line})"
    return replace(finding, message=message, place=Place(file, 1))
