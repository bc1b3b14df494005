"""The page of a certificate is whole, says the verdict first, and shows text as text, whatever is in it."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from porting.diagnostics import Place
from porting.verify.certificate import Curves, KindVerdict, Location, Measured, PrecisionVerdict, Verdict
from porting.verify.certificate_page import (
    draw_gradients,
    draw_loss_distances,
    draw_losses,
    draw_rates,
    list_worst_gradients,
    write_certificate_page,
)
from tests.verify.certificates import make_certificate, make_failed


def pictures_of(page: str) -> list:
    """Return the pictures of a page, parsed."""
    return [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


@pytest.mark.parametrize(
    ("verdict", "colour"),
    [(Verdict.PASS, "ok"), (Verdict.FAIL, "no"), (Verdict.CHAOTIC, "odd"), (Verdict.INCOMPLETE, "odd")],
)
def test_the_verdict_stands_after_what_would_have_been_caught(verdict, colour):
    page = write_certificate_page(make_certificate(verdict=verdict))

    told = f'<p class="verdict {colour}"><b>{verdict.value}</b>everything that'
    assert re.search(rf"</h1>\n<p>gradients that are 0.03 % [^<]*</p>\n{told}", page)


def test_the_page_needs_nothing_else():
    page = write_certificate_page(make_failed())

    assert re.findall(r'(?:src|href)="', page) == []
    assert "<script" not in page


def test_a_fault_is_shown_with_its_line_and_its_program(tmp_path):
    source = tmp_path / "train.py"
    source.write_text("one = 1\nmodel = make()\nx = model(one).detach()\n")
    location = Location("backward", 1, "1", "aten.addmm", Place(str(source), 3, 5), "a <cause>", "print('<alone>')\n")

    page = write_certificate_page(make_failed(location=location))

    assert '<span class="here"><span class="number">3  </span>x = <mark>model(one).detach()</mark></span>' in page
    assert "a &lt;cause&gt;" in page
    assert "print(&#39;&lt;alone&gt;&#39;)" in page


def test_the_pictures_are_losses_distances_gradients_and_rates():
    names = [picture.get("aria-label") for picture in pictures_of(write_certificate_page(make_certificate()))]

    assert names == [
        "losses by step",
        "distance of losses by step",
        "error of each gradient against its noise band",
        "learning rates by step",
    ]


def test_a_gradient_outside_of_its_band_has_another_colour():
    errors = {"inside": (1e-7, 1.0, 1e-6), "outside": (1e-3, 1.0, 1e-6), "lost": (math.inf, 1.0, 1e-6)}

    picture = pictures_of(write_certificate_page(make_certificate(gradient_errors=errors)))[2]

    marks = {group.findtext("title").split(":")[0]: group.find("circle").get("fill") for group in picture.iter("g")}
    assert marks["outside"] == marks["lost"] != marks["inside"]


def test_of_many_gradients_the_worst_are_shown():
    errors = {f"layer.{number}": (number * 1e-9, 1.0, 1e-6) for number in range(100)}

    page = write_certificate_page(make_certificate(gradient_errors=errors))

    assert "layer.99:" in page
    assert "layer.59:" not in page
    assert "60 parameters that fill less of their band are not shown" in page


def test_a_curve_has_a_gap_where_it_is_no_number():
    losses = (2.0, 1.5, math.nan, math.inf, 1.0)
    page = write_certificate_page(make_certificate(curves=Curves(plain=losses, ported=losses)))

    lines = [line.get("points") for line in pictures_of(page)[0].iter("polyline")]
    assert len(lines) == 4
    assert not any("nan" in points or "inf" in points for points in lines)


def test_half_precision_has_a_table_of_its_layers():
    layers = {"0": {"largest": 3.0, "underflows": 12.0}, "": {"largest": math.inf}}
    precision = PrecisionVerdict("float16", True, "half precision explains the distance", 128.0, layers)

    page = write_certificate_page(make_certificate(precision=precision))

    assert "<td>0</td><td>3</td><td>12</td>" in page
    assert "<td>the model</td><td>inf</td><td></td>" in page
    assert "The loss scale that would fit: 128" in page


def test_without_curves_and_gradients_there_are_no_pictures():
    page = write_certificate_page(make_certificate(curves=Curves(), gradient_errors={}, kinds=(), surroundings={}))

    assert pictures_of(page) == []
    assert "Surroundings" not in page


NUMBERS = st.floats() | st.sampled_from([0.0, 1e-320, 1e308, -1.0, math.nan, math.inf])
CURVE = st.lists(NUMBERS, max_size=6).map(tuple)


@given(
    st.builds(Curves, CURVE, CURVE, CURVE, CURVE, CURVE, CURVE, CURVE),
    st.dictionaries(st.text(max_size=60), st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=4),
    st.builds(Measured, st.text(), st.text(), st.integers(0), NUMBERS, NUMBERS, NUMBERS, st.text()),
)
def test_any_numbers_give_pictures_that_can_be_drawn(curves, errors, measured):
    kinds = (KindVerdict(measured.kind, Verdict.FAIL, 1, measured, measured),)
    certificate = make_certificate(curves=curves, gradient_errors=errors, kinds=kinds)

    page = write_certificate_page(certificate)

    places = re.findall(r'(?:points|cx|cy|x|y|d|width|height)="([^"]*)"', "".join(re.findall(r"<svg.*?</svg>", page)))
    assert not any("nan" in place or "inf" in place for place in places)
    assert str(certificate)


# -- pictures ----------------------------------------------------------------------------------------------------------

CURVES = Curves(
    plain=(3.0, 2.0, 1.0),
    ported=(3.0, 2.5, 1.0),
    reference=(3.0, 2.0, 1.0),
    lowest=(3.0, 1.9, 0.9),
    highest=(3.0, 2.1, 1.1),
    plain_rates=(0.1, 0.1, 0.05),
    ported_rates=(0.1, 0.1, 0.1),
)


def parse(lines):
    return ElementTree.fromstring(f"<div>{''.join(lines)}</div>".replace("&#9632;", "x"))


def titles(tree):
    return [title.text for title in tree.iter() if title.tag.endswith("title")]


def test_each_curve_has_its_name():
    tree = parse(draw_losses(CURVES))

    assert {"plain PyTorch", "port", "float64"} <= set(titles(tree))
    assert any(node.tag.endswith("polygon") for node in tree.iter())


@pytest.mark.parametrize("draw", [draw_losses, draw_loss_distances, draw_rates])
def test_nothing_is_drawn_where_there_is_nothing(draw):
    assert not list(draw(Curves(plain=(), ported=())))


def test_a_gap_cuts_a_curve():
    whole = parse(draw_losses(Curves(plain=(1.0, 2.0, 3.0, 4.0), ported=())))
    cut = parse(draw_losses(Curves(plain=(1.0, 2.0, math.nan, 4.0), ported=())))

    lines = [[node for node in tree.iter() if node.tag.endswith(("polyline", "path"))] for tree in (whole, cut)]
    assert len(lines[1]) > len(lines[0]) or len(list(cut.iter())) > len(list(whole.iter()))


def test_equal_losses_have_no_distance():
    equal = Curves(plain=(1.0, 2.0), ported=(1.0, 2.0), lowest=(1.0, 2.0), highest=(1.0, 2.0))

    assert not list(draw_loss_distances(equal))


def test_the_gradients_that_fill_most_of_their_band_are_drawn():
    errors = {f"layer{number}": (float(number), 1.0, 100.0) for number in range(60)}

    worst = list_worst_gradients(errors)

    assert set(worst) == {f"layer{number}" for number in range(60 - len(worst), 60)}
    assert len(worst) < len(errors)
    parse(draw_gradients(errors))
