"""Find additions of other packages by their entry points, without loading them.

Engines and backends are found with it.
"""

from __future__ import annotations

import functools
from importlib import metadata
from typing import Any, Mapping

__all__ = ["read_entry_points"]


def read_entry_points(group: str) -> Mapping[str, Any]:
    """Return the entry points of `group` in all installed packages by name; nothing is loaded.

    >>> read_entry_points("a group that nobody has")
    {}
    """
    found = _read_all()
    # a dictionary by group up to Python 3.9
    entries = found.select(group=group) if hasattr(found, "select") else found.get(group, ())
    return {entry.name: entry for entry in entries}


@functools.lru_cache(maxsize=None)
def _read_all() -> Any:
    """Read a file of each installed package: once, for all groups."""
    return metadata.entry_points()
