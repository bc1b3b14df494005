"""The picture of a curve is well-formed, keeps within its frame, and marks where an engine was exchanged."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from porting.bench.curve_chart import draw_curve

from .test_curve_pages import make_curve


def draw(**changes) -> ElementTree.Element:
    page = "\n".join(draw_curve(make_curve(**changes)))
    return ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])


def places_of(picture: ElementTree.Element) -> list:
    joined = " ".join(part.get("points") for part in picture.iter() if part.get("points"))
    return [tuple(map(float, place.split(","))) for place in joined.split()]


@pytest.mark.parametrize("cold", [(4.0, 4.5, 5.0, 5.5, 6.0), (100.0, 101.0), (0.001, 0.002, 0.003, 0.004, 0.005)])
def test_all_that_is_drawn_lies_in_the_frame(cold):
    picture = draw(cold=cold)

    width, height = map(float, picture.get("viewBox").split()[2:])
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places_of(picture))


def test_eager_is_the_line_at_1_and_higher_is_better():
    lines = {part.get("stroke"): part.get("points").split() for part in draw().iter("polyline")}
    eager, cold, warm = (float(points[-1].partition(",")[2]) for points in lines.values())

    assert warm < eager < cold


def test_an_engine_that_was_exchanged_is_a_dashed_line_with_its_name():
    titles = [title.text for title in draw(engines=("replay", "aot <b>")).iter("title")]

    assert "aot <b> from step 2 on, after 2.00 s, process 1" in titles
