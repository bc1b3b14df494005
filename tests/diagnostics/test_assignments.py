from __future__ import annotations

import linecache

import pytest

from porting.diagnostics import find_assignment


class Base:
    def __init__(self):
        self.total = 0
        self.count = 0

    def forward(self):
        self.total += 1  # total
        (self.first, self.second) = 1, 2  # second


class Derived(Base):
    def reset(self):
        del self.count  # count


@pytest.mark.parametrize("name", ["total", "second", "count"])
def test_the_line_that_binds_an_attribute_is_found(name):
    place = find_assignment(Derived, name)

    assert place.file == __file__
    assert linecache.getline(place.file, place.line).rstrip().endswith(f"# {name}")


def test_init_does_not_count_and_neither_do_other_names():
    assert find_assignment(Base, "count") is None
    assert find_assignment(Derived, "other") is None


def test_classes_without_source_tell_nothing():
    assert find_assignment(type("Typed", (), {}), "count") is None
    assert find_assignment(int, "count") is None
