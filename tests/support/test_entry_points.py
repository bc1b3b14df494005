"""Entry points are found by their group, on old and new versions of Python."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from porting.support import entry_points

ENTRY = SimpleNamespace(name="mine", value="package.module")


class Selectable(dict):
    def select(self, group):
        return self.get(group, ())


@pytest.fixture(autouse=True)
def _nothing_is_known():
    entry_points._read_all.cache_clear()
    yield
    entry_points._read_all.cache_clear()


@pytest.mark.parametrize("kind", [dict, Selectable])
def test_entry_points_are_found_by_group(kind, monkeypatch):
    monkeypatch.setattr(metadata, "entry_points", lambda: kind(group=[ENTRY]))

    assert entry_points.read_entry_points("group") == {"mine": ENTRY}
    assert entry_points.read_entry_points("another") == {}


def test_packages_are_read_once_for_all_groups(monkeypatch):
    reads = []
    monkeypatch.setattr(metadata, "entry_points", lambda: reads.append(1) or Selectable())

    entry_points.read_entry_points("group")
    entry_points.read_entry_points("another")

    assert reads == [1]
