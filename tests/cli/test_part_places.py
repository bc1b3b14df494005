"""What is wrong with a part of a program stands where its function makes that part."""

from __future__ import annotations

import linecache

import pytest

from porting.cli.part_places import collect_part_places, place_findings
from porting.diagnostics import Finding, Place

OWN = Place("net.py", 1)


def make_model():
    """Stand for a model."""


def as_a_tuple():
    loss = make_model()  # loss
    return make_model(), loss, [1, 2]  # model


def as_a_dictionary():
    return {
        "model": make_model(),  # model
        "loss": make_model(),  # loss
    }


def as_keywords():
    made = dict(model=make_model(), loss=None)  # model
    return made


class Holder:
    def as_a_method(self):
        return make_model(), None  # model


@pytest.mark.parametrize("function", [as_a_tuple, as_a_dictionary, as_keywords, Holder().as_a_method])
@pytest.mark.parametrize("part", ["model", "loss"])
def test_a_part_is_where_it_is_made(function, part):
    place = collect_part_places(function, OWN)[part]

    line = linecache.getline(place.file, place.line)
    made = line[place.column - 1 : place.end_column - 1]
    assert made in ("make_model()", "None")
    assert line.rstrip().endswith(f"# {part}") or made == "None"


@pytest.mark.parametrize("found", [{"model": 1}, Holder, len, 5])
def test_what_is_no_function_with_a_source_has_its_own_place(found):
    assert collect_part_places(found, OWN) == {"": OWN}


def test_findings_are_placed_by_what_they_are_about():
    places = {"": OWN, **{part: Place(part, 1) for part in ("model", "loss", "batch", "loader", "options")}}
    codes = ("B006", "C043", "L002", "O001", "P002", "P020")

    placed = place_findings([Finding(code) for code in codes], places)

    assert [finding.place.file for finding in placed] == ["loader", "model", "loss", "model", "options", "model"]


def test_a_finding_keeps_its_own_place():
    (finding,) = place_findings([Finding("L002", place=Place("loss.py", 7))], {"": OWN})

    assert str(finding.place) == "loss.py:7"
