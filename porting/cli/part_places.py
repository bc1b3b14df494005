"""Find the lines that make the parts of a program: a fault of a loss, an optimizer or a batch is shown there.

The program loader and `porting check` use it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import replace
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from porting.diagnostics import Finding, Place

__all__ = ["collect_part_places", "place_findings"]

_POSITIONS = ("model", "loss", "batch", "optimizer", "options")
# by the first letter of a code, or more; the model's place is that of all others
_PARTS: Mapping[str, Tuple[str, ...]] = {
    "B": ("loader", "batch"),
    "L": ("loss",),
    "O": ("optimizer",),
    "P": ("options",),
    "P02": ("model",),
}


def place_findings(findings: Iterable[Finding], places: Mapping[str, Place]) -> List[Finding]:
    """Give findings without a place that of the part that they are about; `places` are from `collect_part_places`.

    >>> found, = place_findings([Finding("L002")], {"model": Place("net.py", 3), "loss": Place("net.py", 4)})
    >>> str(found.place)
    'net.py:4'
    """
    return [
        finding if finding.place is not None else replace(finding, place=_choose_place(finding.code, places))
        for finding in findings
    ]


def _choose_place(code: str, places: Mapping[str, Place]) -> Optional[Place]:
    parts = _PARTS.get(code[:3], _PARTS.get(code[0], ()))
    return next((places[part] for part in (*parts, "model", "") if part in places), None)


def collect_part_places(found: object, place: Optional[Place]) -> Dict[str, Place]:
    """Return the places where a function makes the parts that it returns, by name; its own `place` has the name "".

    The place of a returned name is the line that binds it. A value that is no function has no other place.
    """
    places = {} if place is None else {"": place}
    if not inspect.isroutine(found):
        return places
    function = inspect.unwrap(found)
    try:
        lines, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or ""
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, SyntaxError, TypeError):
        return places
    shift = len(lines[0]) - len(lines[0].lstrip())
    bound = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for returned in (node.value for node in ast.walk(tree) if isinstance(node, ast.Return)):
        for part, value in _iter_parts(bound.get(returned.id) if isinstance(returned, ast.Name) else returned):
            made = bound.get(value.id, value) if isinstance(value, ast.Name) else value
            line, end_line = first + made.lineno - 1, first + (made.end_lineno or made.lineno) - 1
            ends = (made.end_col_offset or 0) + shift + 1
            places[part] = Place(file, line, made.col_offset + shift + 1, end_line, ends)
    return places


def _iter_parts(returned: Optional[ast.expr]) -> Iterator[Tuple[str, ast.expr]]:
    """Yield the parts of a tuple, a dictionary, or a call with keywords, as of `dict` or a class."""
    if isinstance(returned, (ast.Tuple, ast.List)):
        yield from zip(_POSITIONS, returned.elts)
    elif isinstance(returned, ast.Dict):
        for key, item in zip(returned.keys, returned.values):
            if isinstance(key, ast.Constant):
                yield str(key.value), item
    elif isinstance(returned, ast.Call):
        yield from ((keyword.arg, keyword.value) for keyword in returned.keywords if keyword.arg)
