"""Plan the ejection of a project: each file without its port, and what of this package is left to a person."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Iterator, List, Sequence

import libcst as cst

from porting.convert.bindings import Undecided
from porting.convert.conversion import PLAIN, Conversion
from porting.convert.device_option import DeviceOption
from porting.convert.editing import Edit, make_diff
from porting.convert.eject import eject_text, list_names_left
from porting.source.files import list_sources

__all__ = ["plan_ejection"]


def plan_ejection(root: str, script: str, arguments: Sequence[str], port_arguments: Sequence[str]) -> Conversion:
    """Plan the ejection of all files of a project; nothing is run or written.

    `port_arguments` are the words of the command line that make its training a port.
    """
    option = DeviceOption(words={"sim": tuple(port_arguments)})
    made = Conversion(root, script, arguments, PLAIN, option)
    files, _findings = list_sources(root)
    for path in files:
        text = Path(path).read_bytes()
        if not path.endswith(".py") or not any(word in text for word in (b"porting", b"PORT_DEVICE", b"poptorch")):
            continue
        try:
            after = eject_text(text)
        except (cst.ParserSyntaxError, ValueError) as error:
            line = getattr(error, "raw_line", 1)
            made.left.append(Undecided(path, line, "the file cannot be read", "mend it, and eject again"))
            continue
        name = os.path.relpath(path, root)
        if after != text:
            made.changed[name], made.before[name] = after, text
            made.diffs.append(make_diff(text, after, name))
            made.edits.append(Edit(path, 1, "port", "of each branch the plain one stays"))
        made.left += list(_iter_left(path, after))
    return made


def _iter_left(path: str, text: bytes) -> Iterator[Undecided]:
    """Iterate over the lines that still use this package."""
    names = list_names_left(text)
    lines: List[int] = []
    for node in ast.walk(ast.parse(text)) if names else ():
        if isinstance(node, ast.Name) and node.id in names and node.lineno not in lines:
            lines.append(node.lineno)
            reason = f"`{node.id}` is of the port's package, and no plain branch stands beside it"
            yield Undecided(path, node.lineno, reason, "put the plain training in its place")
