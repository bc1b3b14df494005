"""Plan the ejection of a project: each file without its port, and what of this package is left to a person."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Dict, Iterator, List, Optional, Sequence

import libcst as cst

from porting.convert.bindings import Undecided
from porting.convert.conversion import PLAIN, Conversion
from porting.convert.device_option import DeviceOption
from porting.convert.editing import Edit, EditError, FileEdits, make_diff
from porting.convert.eject import drop_unused_imports, eject_text, list_names_left
from porting.convert.handwritten import rewrite_ports
from porting.convert.program import read_program
from porting.source.files import list_sources

__all__ = ["plan_ejection"]

_NOTE = "the port was written by hand: its plain loop is compared with it, and there is no other to compare bit by bit"


def plan_ejection(root: str, script: str, arguments: Sequence[str], port_arguments: Sequence[str]) -> Conversion:
    """Plan the ejection of all files of a project; nothing is run or written.

    `port_arguments` are the words of the command line that make its training a port.
    """
    option = DeviceOption(words={"sim": tuple(port_arguments)})
    made = Conversion(root, script, arguments, PLAIN, option)
    edits: Dict[str, FileEdits] = {}
    if not _has_plain_branches(root):
        made.option = DeviceOption(words={"sim": ()})
        program = read_program(root, os.path.join(root, script))
        edits = {file.path: FileEdits(file, Path(file.path).read_bytes()) for file in program.files.values()}
        made.left += rewrite_ports(program, edits)
    by_path = {os.path.realpath(one): file for one, file in edits.items()}
    files, _findings = list_sources(root)
    for path in files:
        text = Path(path).read_bytes()
        if not path.endswith(".py") or not any(word in text for word in (b"porting", b"PORT_DEVICE", b"poptorch")):
            continue
        try:
            after = _rewrite(made, by_path.get(os.path.realpath(path)), text)
        except (cst.ParserSyntaxError, ValueError) as error:
            line = getattr(error, "raw_line", 1)
            made.left.append(Undecided(path, line, "the file cannot be read", "mend it, and eject again"))
            continue
        name = os.path.relpath(path, root)
        if after != text:
            made.changed[name], made.before[name] = after, text
            made.diffs.append(make_diff(text, after, name))
            made.edits.append(Edit(path, 1, "port", "of each branch the plain one stays"))
        known = {one.line for one in made.left if os.path.realpath(one.path) == os.path.realpath(path)}
        made.left += [one for one in _iter_left(path, after) if not known]
    made.notes += [_NOTE] if edits and (made.changed or made.left) else []
    return made


def _has_plain_branches(root: str) -> bool:
    """Tell whether the ports of a project have plain branches beside them, as those of `porting convert` have."""
    texts = [Path(path).read_bytes() for path in list_sources(root)[0] if path.endswith(".py")]
    return any(word in text for text in texts for word in (b"PORT_DEVICE", b".IPU", b"PortedModel"))


def _rewrite(made: Conversion, edits: Optional[FileEdits], text: bytes) -> bytes:
    """Return a file without its port; what is imported of this package goes where nothing else uses it."""
    if edits is None or not edits.edits:
        return eject_text(text)
    try:
        after = edits.apply()
    except EditError as error:
        made.left.append(Undecided(edits.file.path, edits.edits[0].line, str(error), "make this edit by hand"))
        return text
    return drop_unused_imports(after)


def _iter_left(path: str, text: bytes) -> Iterator[Undecided]:
    """Iterate over the lines that still use this package."""
    names = list_names_left(text)
    lines: List[int] = []
    for node in ast.walk(ast.parse(text)) if names else ():
        if isinstance(node, ast.Name) and node.id in names and node.lineno not in lines:
            lines.append(node.lineno)
            reason = f"`{node.id}` is of the port's package, and no plain branch stands beside it"
            yield Undecided(path, node.lineno, reason, "put the plain training in its place")
