"""Plain data come back as they went, and of anything else it is told where it is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Mapping, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.support.plain_data import WrongDataError, make_plain, read_json, read_plain


class Colour(Enum):
    """Two values of an enumeration."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Point:
    """A part of `Drawing`."""

    at: Tuple[float, float]
    label: Optional[str] = None


@dataclass(frozen=True)
class Drawing:
    """One of each type that is known."""

    points: Tuple[Point, ...]
    colour: Colour
    count: int
    is_closed: bool
    more: Mapping[str, Any]


FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2**60) | FLOATS | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=8,
)
DRAWINGS = st.builds(
    Drawing,
    points=st.lists(st.builds(Point, at=st.tuples(FLOATS, FLOATS), label=st.none() | TEXTS)).map(tuple),
    colour=st.sampled_from(Colour),
    count=st.integers(0, 2**70),
    is_closed=st.booleans(),
    more=st.dictionaries(TEXTS, ANY),
)


def write_and_read(made):
    return read_plain(type(made), read_json(json.dumps(make_plain(made), allow_nan=False)))


@given(DRAWINGS)
def test_what_is_written_is_read(drawing):
    assert write_and_read(drawing) == drawing


def test_a_number_that_is_none_is_read():
    (point,) = write_and_read(Drawing((Point((math.nan, -math.inf)),), Colour.RED, 0, True, {})).points

    assert math.isnan(point.at[0])
    assert point.at[1] == -math.inf


@given(ANY)
def test_anything_else_is_refused_by_name(value):
    with pytest.raises(WrongDataError):
        read_plain(Drawing, value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("count", -1, "`count` must be a whole number from 0 on, not -1"),
        ("count", True, "`count` must be a whole number from 0 on, not True"),
        ("colour", "green", "`colour` must be one of red, blue, not 'green'"),
        ("is_closed", 1, "`is_closed` must be true or false, not 1"),
        ("points", [{"at": [1.0], "label": None}], "`points[0].at` must be a list of 2, not [1.0]"),
        ("points", [{"at": [1.0, "x"], "label": None}], "`points[0].at[1]` must be a number, not 'x'"),
        ("more", [], "`more` must be an object, not []"),
        ("more", {"$x": 1}, "`more` must be a name, not '$x'"),
    ],
)
def test_it_is_told_where_a_value_is_wrong(name, value, said):
    plain = make_plain(Drawing((), Colour.RED, 1, True, {}))

    with pytest.raises(WrongDataError) as caught:
        read_plain(Drawing, {**plain, name: value})

    assert said in str(caught.value)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[NaN]", "[1e999]"])
def test_json_that_readers_take_in_different_ways_is_refused(text):
    with pytest.raises(WrongDataError):
        read_json(text)


def test_what_is_nested_without_end_is_refused():
    nested: Any = []
    for _ in range(20_000):
        nested = [nested]

    with pytest.raises(WrongDataError, match="nested"):
        read_plain(Drawing, {**make_plain(Drawing((), Colour.RED, 1, True, {})), "more": {"a": nested}})


@pytest.mark.parametrize("value", [{1, 2}, object(), {1: 2}])
def test_what_json_cannot_hold_is_refused_when_it_is_written(value):
    with pytest.raises(TypeError, match="plain data"):
        make_plain(value)


def test_of_any_version_what_has_a_default_may_be_missing():
    assert read_plain(Point, {"at": [1.0, 2.0]}, of_any_version=True) == Point((1.0, 2.0))

    with pytest.raises(WrongDataError, match="`label` is missing"):
        read_plain(Point, {"at": [1.0, 2.0]})


def test_what_is_not_known_is_refused_of_any_version():
    with pytest.raises(WrongDataError, match="`more` is not known"):
        read_plain(Point, {"at": [1.0, 2.0], "more": 1}, of_any_version=True)
