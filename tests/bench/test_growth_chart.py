"""The picture of growth has a line for each figure that is known, and one that is linear."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from porting.bench.growth import find_growths
from porting.bench.growth_chart import draw_growth

from .test_growth import make_cell


def make_growth(**figures):
    cells = [make_cell(1e-3 * layers, layers=layers) for layers in (2, 4, 8)]
    for cell in cells:
        cell["result"]["machinery"].update(figures)
    return find_growths(cells)[0]


def test_every_figure_has_a_line_and_a_name():
    growth = make_growth()

    picture = ElementTree.fromstring("".join(draw_growth(growth)))

    assert [title.text for title in picture.iter("title")] == list(growth.seconds)
    assert {"linear", *growth.seconds} <= {text.text for text in picture.iter("text")}


def test_a_figure_in_proportion_is_parallel_to_the_linear_line():
    picture = ElementTree.fromstring("".join(draw_growth(make_growth())))

    rises = set()
    for line in picture.iter("polyline"):
        heights = [float(place.partition(",")[2]) for place in line.get("points").split()]
        rises.add(round(heights[0] - heights[-1]))
    assert max(rises) - min(rises) <= 1


def test_what_is_not_known_is_left_out():
    picture = ElementTree.fromstring("".join(draw_growth(make_growth(beyond_seconds=None))))

    assert "beyond operators" not in {title.text for title in picture.iter("title")}
