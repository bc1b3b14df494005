"""A `Table` is shown as lines of text and in a page; both are made of the same rows.

Modules that tell figures of cases make tables. Here are their layout as text, the names of cases, and how quantities
are written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Collection, Iterable, Iterator, List, Mapping, Sequence, Tuple

from porting.diagnostics import align_columns

__all__ = ["Plain", "Row", "Table", "lay_out_tables", "name_case", "name_cases", "write_interval", "write_seconds"]

Plain = Mapping[str, Any]
"""A case or a part of it, as result files hold it."""

Row = Tuple[str, ...]
"""The texts of a row of a table."""


@dataclass(frozen=True)
class Table:
    """A table with what is said of it: `about` stands above, `notes` below; the first of `rows` is the header.

    `name` is that of the case, where there are several. The columns `left` are aligned at their beginnings, all
    others at their ends.
    """

    about: str
    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()
    name: str = ""
    left: Collection[int] = (0, -1)


def lay_out_tables(tables: Iterable[Table]) -> Iterator[str]:
    """Lay out tables as text, one below the other.

    >>> list(lay_out_tables([Table("steps to go", [("side", "steps"), ("eager", "7")], left=[0])]))
    ['steps to go', '  side   steps', '  eager      7']
    """
    for number, table in enumerate(tables):
        if table.name or number:
            yield ""
        if table.name:
            yield f"{table.name}:"
        yield table.about
        width = len(table.rows[0]) if table.rows else 0
        right = {column for column in range(width) if not {column, column - width} & set(table.left)}
        yield from (f"  {line}" for line in (*align_columns(table.rows, right=right), *table.notes))


# -- names -------------------------------------------------------------------------------------------------------------


def name_case(case: Plain) -> str:
    """Return the full name of a case, with all of its choices."""
    return " ".join([case["name"], *_write_choices(case, case["choices"])])


def name_cases(cases: Sequence[Plain]) -> Tuple[str, List[str]]:
    """Return what cases have in common, and the short name of each: with the choices that vary only.

    >>> choices = {"engine": "replay", "precision": "float32"}
    >>> cases = [{"name": "cnn", "choices": {**choices, "batch": batch}} for batch in (8, 16)]
    >>> name_cases(cases)
    ('float32, replay', ['cnn batch 8', 'cnn batch 16'])
    """
    keys = [key for case in cases[:1] for key in case["choices"]]
    varying = [key for key in keys if len({case["choices"][key] for case in cases}) > 1]
    common = [key for key in keys if key not in varying]
    above = ", ".join(_write_choices({**cases[0], "repeat": 1}, common)) if cases else ""
    return above, [" ".join([case["name"], *_write_choices(case, varying)]) for case in cases]


_WORDS = {
    "batch": "batch {}",
    "precision": "{}",
    "engine": "{}",
    "accumulation": "{} accumulated",
    "replicas": "{} replicas",
    "device_iterations": "{} steps a call",
    "threads": "{} thread(s)",
    "order": "order {}",
    "layers": "{} layers",
}


def _write_choices(case: Plain, keys: Iterable[str]) -> List[str]:
    """Write some choices of a case in words, in the order of `_WORDS`."""
    chosen = {key: case["choices"][key] for key in keys if case["choices"][key] is not None}
    words = [form.format(chosen[key]) for key, form in _WORDS.items() if key in chosen]
    return words + ([f"#{case['repeat']}"] if case.get("repeat", 1) > 1 else [])


# -- quantities --------------------------------------------------------------------------------------------------------


def write_interval(interval: Plain) -> str:
    """Write a ratio with the ends of its interval.

    >>> write_interval({"median": 1.234, "low": 0.004, "high": 1.3})
    '1.23 (0.004-1.30)'
    """
    values = (float(interval[name]) for name in ("median", "low", "high"))
    median, low, high = (f"{value:.2f}" if value >= 0.01 else f"{value:.1g}" for value in values)
    return f"{median} ({low}-{high})"


def write_seconds(value: float) -> str:
    """Write a duration with three digits and its unit.

    >>> write_seconds(0.00123), write_seconds(75.2), write_seconds(0.0421)
    ('1.23 ms', '75.2 s', '42.1 ms')
    """
    factor, unit = next(((by, unit) for by, unit in ((1e6, "us"), (1e3, "ms")) if value * by < 999.5), (1.0, "s"))
    scaled = value * factor
    digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
    return f"{scaled:.{digits}f} {unit}"
