"""List what `porting check` finds in a converted program, by the lines of the old one: it is left to a person."""

from __future__ import annotations

import os
from difflib import SequenceMatcher
from typing import List, Sequence

from porting.convert.bindings import Undecided
from porting.convert.conversion import Conversion
from porting.diagnostics import Finding

__all__ = ["list_leftovers"]


def list_leftovers(made: Conversion, findings: Sequence[Finding], folder: str) -> List[Undecided]:
    """List what was found in a conversion that is written into a folder, which has to be there still."""
    return [_leave(made, one, os.path.realpath(folder)) for one in findings]


def _leave(made: Conversion, finding: Finding, folder: str) -> Undecided:
    path, line = os.path.join(made.root, made.script), 1
    if finding.place is not None:
        # what did not change is a link to the old file
        path, line = os.path.realpath(finding.place.file), finding.place.line
        name = os.path.relpath(path, folder)
        if name in made.changed:
            path, line = os.path.join(made.root, name), _find_line(made.before[name], made.changed[name], line)
    remedy = finding.help[0] if finding.help else f"`porting explain {finding.code}` says more"
    return Undecided(path, line, f"{finding.code}: {finding.message}", remedy)


def _find_line(before: bytes, after: bytes, line: int) -> int:
    """Find the line of the old text for one of the new: of an insertion the one behind it."""
    matcher = SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    block = next(one for one in matcher.get_matching_blocks() if line <= one.b + one.size or not one.size)
    return block.a + max(0, line - 1 - block.b) + 1
