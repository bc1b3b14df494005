"""Show a conversion, with the columns of its proof, the edits by file, and what is left to a person.

The text is for people; the plain data are for tools and coding agents.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from typing import Any, Dict, List, Optional, Sequence

from porting.convert.bindings import Undecided
from porting.convert.conversion import PLAIN, Conversion
from porting.convert.proof import Proof
from porting.diagnostics import align_columns, say_number

__all__ = ["describe_conversion", "write_report"]

_FORMAT_VERSION = 1
_COLUMNS = ("specification", "numeric", "behavioral")
_PROVED_BY = {"option": "specification", "import": "specification", "cuda": "specification"}
"""The column that shows whether an edit of a kind is right; all others show in the behavioral one."""


def write_report(made: Conversion, proof: Optional[Proof], *, shows_diff: bool = False) -> str:
    """Write the report as text."""
    lines = [f"{made.script}, style {made.style}: {_count_edits(made)}"]
    rows = [(edit.kind, f"{_shorten(edit.path, made)}:{edit.line}", edit.why) for edit in made.edits]
    lines += ["", *align_columns(rows)] if rows else []
    if shows_diff:
        lines += ["", *(diff.rstrip("\n") for diff in made.diffs)]
    lines += ["", *(f"note: {note}" for note in made.notes)] if made.notes else []
    if made.left:
        lines += ["", f"left to you: {say_number(len(made.left), 'place')}"]
        lines += [line for one in made.left for line in _describe_left(one, made)]
    lines += ["", *([str(proof)] if proof is not None else _list_unrun(made))]
    if proof is not None and "CONVERTED" in str(proof):
        lines.append("  CONVERTED is the folder of `--write --out CONVERTED`")
    lines += ["", *_list_launches(made)] if made.changed else []
    return "\n".join(lines)


def describe_conversion(made: Conversion, proof: Optional[Proof]) -> Dict[str, Any]:
    """Describe the conversion as plain data: edits with their places, what is left, columns, and the next commands."""
    verb = "eject" if made.style == PLAIN else "convert"
    prove = shlex.join(["porting", verb, os.path.relpath(made.root), "--run", made.command])
    return {
        "version": _FORMAT_VERSION,
        "script": made.script,
        "style": made.style,
        "edits": [
            {
                "file": _shorten(edit.path, made),
                "line": edit.line,
                "kind": edit.kind,
                "why": edit.why,
                "proved_by": {"column": _PROVED_BY.get(edit.kind, "behavioral"), "command": prove},
            }
            for edit in made.edits
        ],
        "left": [
            {"file": _shorten(one.path, made), "line": one.line, "reason": one.reason, "help": one.help}
            for one in made.left
        ],
        "notes": list(made.notes),
        "files": sorted(made.changed),
        "proof": {"is_proven": False, "columns": _name_unrun()} if proof is None else proof.as_plain(),
        "commands": {"prove": prove, "write": f"{prove} --write", "train": next(iter(made.launches.values()))},
    }


def _name_unrun() -> Sequence[Dict[str, str]]:
    return [{"name": name, "outcome": "not run"} for name in _COLUMNS]


def _count_edits(made: Conversion) -> str:
    if not made.edits:
        return "nothing to convert"
    return f"{say_number(len(made.edits), 'edit')} in {say_number(len(made.changed), 'file')}"


def _shorten(path: str, made: Conversion) -> str:
    return os.path.relpath(os.path.realpath(path), os.path.realpath(made.root))


def _describe_left(one: Undecided, made: Conversion) -> List[str]:
    return [
        f"  {_shorten(one.path, made)}:{one.line}: {one.reason}",
        *textwrap.wrap(one.help, 96, initial_indent="      ", subsequent_indent="      "),
    ]


def _list_unrun(made: Conversion) -> Sequence[str]:
    reason = "no command was given: --run 'train.py ...'" if made.changed else "there is nothing to prove"
    return align_columns([(name, "not run", reason) for name in _COLUMNS])


def _list_launches(made: Conversion) -> List[str]:
    return ["how it is started:", *(f"  {line}" for line in align_columns([*made.launches.items()]))]
