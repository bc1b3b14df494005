"""Show a conversion, with the columns of its proof, the edits by file, and what is left to a person.

The text is for people; the plain data are for tools and coding agents.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from collections import Counter
from typing import Any, Dict, Iterator, List, Optional, Sequence, TextIO, Tuple

from porting.convert.bindings import Undecided
from porting.convert.columns import Outcome, Proof
from porting.convert.conversion import PLAIN, Conversion
from porting.diagnostics import align_columns, find_width, has_colours, join_names, paint, say_number

__all__ = ["describe_conversion", "write_report"]

_FORMAT_VERSION = 1
_COLUMNS = ("specification", "numeric", "behavioral")
_PROVED_BY = {"option": "specification", "import": "specification", "cuda": "specification"}
"""The column that shows whether an edit of a kind is right; all others show in the behavioral one."""
_COLOURS = {Outcome.PASSED: "green", Outcome.FAILED: "red", Outcome.NOT_RUN: "yellow"}
_UNRUN = "the program was not run: --run 'train.py ...' without --plan runs it"
_MOST_FILES, _MOST_REASONS, _MOST_PLACES = 20, 20, 3


def write_report(
    made: Conversion,
    proof: Optional[Proof],
    stream: TextIO,
    *,
    shows_diff: bool = False,
    shows_commands: bool = False,
) -> str:
    """Write the report as text for the reader of a stream: a terminal's has lines of its width, and colours.

    The commands of the columns work where the converted project was written beside the old one.
    """
    width = find_width(stream)
    lines = [f"{made.script}, style {made.style}: {_count_edits(made)}", ""]
    lines += [line for row in _list_columns(made, proof) for line in _lay_out(row, width, has_colours(stream))]
    lines += ["", *_list_files(made)] if made.edits else []
    if made.edits and not shows_diff:
        lines.append("  --diff shows the edits")
    if shows_diff:
        lines += ["", *(diff.rstrip("\n") for diff in made.diffs)]
    lines += [""] if made.notes else []
    lines += [line for note in made.notes for line in _wrap(f"note: {note}", width, indent=2)]
    lines += ["", f"left to you: {say_number(len(made.left), 'place')}"] if made.left else []
    lines += [line for row in _iter_left(made) for line in _wrap(row, width, indent=6)]
    lines += ["", *_list_launches(made)] if made.changed else []
    if shows_commands and proof is not None:
        lines += ["", "to see it again:", *(f"  {one.name}: {one.command}" for one in proof.columns if one.command)]
    return "\n".join(lines)


def describe_conversion(
    made: Conversion, proof: Optional[Proof], *, options: Sequence[str] = (), written: Optional[str] = None
) -> Dict[str, Any]:
    """Describe the conversion as plain data: edits with their places, what is left, columns, and the next commands.

    `options` are those of the command that made it; `written` is the folder that it was written into.
    """
    verb = "eject" if made.style == PLAIN else "convert"
    prove = shlex.join(["porting", verb, os.path.relpath(made.root), "--run", made.command, *options])
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
        "written": written,
        "proof": {"is_proven": False, "columns": _name_unrun()} if proof is None else proof.as_plain(),
        "commands": {"prove": prove, "write": f"{prove} --write", "train": next(iter(made.launches.values()))},
        "launches": dict(made.launches) if made.changed else {},
    }


def _name_unrun() -> Sequence[Dict[str, Any]]:
    unrun = {"outcome": Outcome.NOT_RUN.value, "reason": _UNRUN, "numbers": {}, "command": ""}
    return [{"name": name, **unrun} for name in _COLUMNS]


def _count_edits(made: Conversion) -> str:
    if not made.edits:
        return "there is no port in it" if made.style == PLAIN else "nothing to convert"
    return f"{say_number(len(made.edits), 'edit')} in {say_number(len(made.changed), 'file')}"


def _shorten(path: str, made: Conversion) -> str:
    return os.path.relpath(os.path.realpath(path), os.path.realpath(made.root))


def _list_columns(made: Conversion, proof: Optional[Proof]) -> List[Tuple[Outcome, str, str]]:
    if proof is not None:
        return [(column.outcome, column.name, column.reason) for column in proof.columns]
    return [(Outcome.NOT_RUN, name, _UNRUN if made.changed else "nothing was converted") for name in _COLUMNS]


def _lay_out(row: Tuple[Outcome, str, str], width: Optional[int], is_coloured: bool) -> List[str]:
    """Lay a column out: what it says, its name, and the reason, which a narrow terminal gets in several lines."""
    outcome, name, reason = row
    said = f"{outcome.value:<7}"
    lines = _wrap(f"{said}  {name:<13}  {reason}", width, indent=24)
    return [lines[0].replace(said, paint(said, _COLOURS[outcome]), 1) if is_coloured else lines[0], *lines[1:]]


def _wrap(line: str, width: Optional[int], *, indent: int) -> List[str]:
    if width is None or len(line) <= width:
        return [line]
    start = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=start if len(start) >= indent else " " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _list_files(made: Conversion) -> List[str]:
    """List the files with the kinds of their edits."""
    kinds: Dict[str, Counter[str]] = {}
    for edit in made.edits:
        kinds.setdefault(_shorten(edit.path, made), Counter())[edit.kind] += 1
    rows = [
        (f"  {name}", ", ".join(f"{kind} x{number}" if number > 1 else kind for kind, number in counted.items()))
        for name, counted in kinds.items()
    ]
    more = [f"  and {say_number(len(rows) - _MOST_FILES, 'more file')}"] if len(rows) > _MOST_FILES else []
    return ["edits:", *align_columns(rows[:_MOST_FILES]), *more]


def _iter_left(made: Conversion) -> Iterator[str]:
    """Iterate over what is left, each reason once with its places, and with what to do."""
    groups: Dict[Tuple[str, str], List[Undecided]] = {}
    for one in made.left:
        groups.setdefault((one.reason, one.help), []).append(one)
    for (reason, remedy), ones in [*groups.items()][:_MOST_REASONS]:
        places = [f"{_shorten(one.path, made)}:{one.line}" for one in ones]
        yield f"  {join_names(places, most=_MOST_PLACES, quote='')}: {reason}"
        yield f"      {remedy}"
    if len(groups) > _MOST_REASONS:
        yield f"  and {say_number(len(groups) - _MOST_REASONS, 'more reason')}: --format json lists all"


def _list_launches(made: Conversion) -> List[str]:
    return ["to train:", *(f"  {line}" for line in align_columns([*made.launches.items()]))]
