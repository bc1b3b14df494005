"""Versions are compared number by number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.support.versions import is_version_between, read_version

NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=4)


@given(NUMBERS, st.sampled_from(["", "+cu117", ".dev0", "rc1", "-beta", " "]))
def test_the_numbers_at_the_beginning_are_read(numbers, tail):
    text = ".".join(map(str, numbers))
    read = read_version(text + tail)

    assert read[: len(numbers)] == tuple(numbers)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_version_lies_between_others_as_its_numbers_do(version, first, below):
    texts = [".".join(map(str, numbers)) for numbers in (version, first, below)]

    assert is_version_between(*texts) == (tuple(first) <= tuple(version) < tuple(below))


@pytest.mark.parametrize("text", ["", "unknown", ".1"])
def test_a_text_without_numbers_has_none(text):
    assert read_version(text) == ()
