"""Entry points are found by their group, on old and new versions of Python."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from porting.support.entry_points import read_entry_points

ENTRY = SimpleNamespace(name="mine", value="package.module")


class Selectable(dict):
    def select(self, group):
        return self.get(group, ())


@pytest.mark.parametrize("kind", [dict, Selectable])
def test_entry_points_are_found_by_group(kind, monkeypatch):
    monkeypatch.setattr(metadata, "entry_points", lambda: kind(group=[ENTRY]))
    read_entry_points.cache_clear()

    assert read_entry_points("group") == {"mine": ENTRY}
    assert read_entry_points("another") == {}
    read_entry_points.cache_clear()
