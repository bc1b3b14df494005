"""Writes docs/simulator-coverage.md: what the simulator has of PopTorch's surface, and the operators with a test."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from pathlib import Path
from typing import Dict, Iterator, List, Sequence

from . import operator_cases
from .surface import SURFACE, Entry, difference, entries

PAGE = Path(__file__).parents[2] / "docs" / "simulator-coverage.md"

_HEAD = """\
# What the simulator has of PopTorch 3.4

Made from `tests/simulator/surface.json`, the public names as data, and from the simulator itself. `make coverage-page`
writes it again, and a test keeps it true. What has the same name and behaves differently is on
[the page of differences](simulator-differences.md).
"""
_KINDS = {
    "member of an enumeration": "members of enumerations",
    "function": "functions",
    "value": "modules and values",
    "class": "classes",
    "member of a class": "members of classes",
    "operator": "operators of `torch.ops.poptorch`",
}


def render() -> str:
    """Return the page."""
    found = {entry: difference(entry) for entry in {entry.path: entry for entry in entries()}.values()}
    lines = [_HEAD, *_summary(found), ""]
    lines += ["## Not as in PopTorch", "", *_differences(found), ""]
    lines += ["## Functions", "", *_functions(), ""]
    lines += ["## Classes", "", *_classes(), ""]
    lines += ["## Enumerations", "", *_enumerations(), ""]
    lines += ["## Operators in forward", "", *_operators(), ""]
    lines += ["## Inner names of the compiled part", "", *_replaced()]
    return "\n".join(lines) + "\n"


def _summary(found: Dict[Entry, object]) -> Iterator[str]:
    yield "| what | names | as in PopTorch |"
    yield "|---|---|---|"
    total, same = Counter(entry.kind for entry in found), Counter(e.kind for e, other in found.items() if not other)
    for kind, name in _KINDS.items():
        yield f"| {name} | {total[kind]} | {same[kind]} |"


def _differences(found: Dict[Entry, object]) -> Iterator[str]:
    lines = [f"* `{entry.path}` {other}" for entry, other in found.items() if other]
    yield from lines or ["Nothing: every public name is there with its signature."]


def _functions() -> Iterator[str]:
    for module, names in SURFACE["functions"].items():
        if module != "poptorch.ops":
            calls = [f"`{name}{signature or '(...)'}`" for name, signature in sorted(names.items(), key=_by_name)]
            yield f"* `{module}`: {', '.join(_shortened(call) for call in calls)}"


def _classes() -> Iterator[str]:
    for path, facts in SURFACE["classes"].items():
        members = sorted(name for name in facts["members"] if not name.startswith("__"))
        yield f"* `{path}`" + (f": {', '.join(f'`{name}`' for name in members)}" if members else "")


def _enumerations() -> Iterator[str]:
    for path, members in SURFACE["enums"].items():
        yield f"* `{path}`: {', '.join(f'`{name}`' for name in members)}"


def _operators() -> Iterator[str]:
    yield "Each of these is compared with plain PyTorch, and trained through where it has a gradient."
    yield ""
    for module in sorted(name for _finder, name, _is_package in pkgutil.iter_modules(operator_cases.__path__)):
        tables = vars(importlib.import_module(f"{operator_cases.__name__}.{module}"))
        names = sorted({case for name, table in tables.items() if name.isupper() for case in _cases_in(table)})
        if names:
            yield f"* {module}: {', '.join(f'`{name}`' for name in names)}"


def _cases_in(table: object) -> List[str]:
    if not isinstance(table, dict):
        return []
    return [name for name, case in table.items() if isinstance(case, operator_cases.Case)]


def _replaced() -> Sequence[str]:
    return [
        "No program calls these: PopTorch's own Python does, in its compiled part. Other code does their work here: "
        + ", ".join(f"`{name}`" for name in SURFACE["replaced"])
        + "."
    ]


def _by_name(item: Sequence[str]) -> str:
    return item[0].lower()


def _shortened(call: str) -> str:
    return call if len(call) <= 60 else call.partition("(")[0] + "(...)`"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
