"""Pictures of a certificate have each curve by its name, gaps where there are no numbers, gradients by their colour."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from porting.verify.certificate import Curves
from porting.verify.certificate_pictures import (
    draw_gradients,
    draw_loss_distances,
    draw_losses,
    draw_rates,
    list_worst_gradients,
)

pytest.importorskip("matplotlib")

CURVES = Curves(
    plain=(3.0, 2.0, 1.0),
    ported=(3.0, 2.5, 1.0),
    reference=(3.0, 2.0, 1.0),
    lowest=(3.0, 1.9, 0.9),
    highest=(3.0, 2.1, 1.1),
    plain_rates=(0.1, 0.1, 0.05),
    ported_rates=(0.1, 0.1, 0.1),
)
SPACE = "{http://www.w3.org/2000/svg}"


def find_parts(picture):
    """Return the parts of a picture that have a title, by it, as text."""
    groups = (group for group in ElementTree.fromstring(picture).iter(f"{SPACE}g"))
    titled = ((group.findtext(f"{SPACE}title"), group) for group in groups)
    return {title: ElementTree.tostring(group, "unicode") for title, group in titled if title}


def count_strokes(picture, title):
    """Count how often a curve begins anew."""
    return len(re.findall(r"M ", "".join(re.findall(r' d="([^"]*)" clip-path', find_parts(picture)[title]))))


def test_each_curve_has_its_name():
    assert set(find_parts(draw_losses(CURVES))) == {"plain PyTorch", "port", "float64"}
    assert set(find_parts(draw_loss_distances(CURVES))) == {"port", "float64"}
    assert set(find_parts(draw_rates(CURVES))) == {"schedule", "port"}


def test_the_area_of_rounding_is_told_where_there_is_one():
    assert "where rounding alone leads" in draw_losses(CURVES)
    assert "where rounding alone leads" not in draw_losses(Curves(plain=(1.0, 2.0), ported=(1.0, 2.0)))


@pytest.mark.parametrize("draw", [draw_losses, draw_loss_distances, draw_rates])
def test_nothing_is_drawn_where_there_is_nothing(draw):
    assert draw(Curves(plain=(), ported=())) == ""


def test_equal_losses_have_no_distance():
    equal = Curves(plain=(1.0, 2.0), ported=(1.0, 2.0), lowest=(1.0, 2.0), highest=(1.0, 2.0))

    assert draw_loss_distances(equal) == ""


def test_a_curve_has_a_gap_where_it_is_no_number():
    whole = draw_losses(Curves(plain=(2.0, 1.5, 1.2, 1.1, 1.0), ported=(1.0,)))
    cut = draw_losses(Curves(plain=(2.0, 1.5, math.nan, 1.1, 1.0), ported=(1.0,)))

    assert (count_strokes(whole, "plain PyTorch"), count_strokes(cut, "plain PyTorch")) == (1, 2)


def test_a_single_number_has_a_mark():
    alone = find_parts(draw_losses(Curves(plain=(2.0, math.inf, 1.0, 1.5), ported=())))["plain PyTorch"]
    line = find_parts(draw_losses(Curves(plain=(2.0, 2.5, 1.0, 1.5), ported=())))["plain PyTorch"]

    assert (alone.count(":use "), line.count(":use ")) == (1, 0)


def test_a_gradient_outside_of_its_band_has_another_colour():
    errors = {"inside": (1e-7, 1.0, 1e-6), "outside": (1e-3, 1.0, 1e-6), "lost": (math.inf, 1.0, 1e-6)}

    parts = {title.split(":")[0]: part for title, part in find_parts(draw_gradients(errors)).items()}

    colours = {name: re.findall(r"fill: (#[0-9a-f]+)", part)[0] for name, part in parts.items()}
    assert colours["outside"] == colours["lost"] != colours["inside"]


def test_the_gradients_that_fill_most_of_their_band_are_drawn():
    errors = {f"layer{number}": (float(number), 1.0, 100.0) for number in range(60)}

    worst = list_worst_gradients(errors)

    assert set(worst) == {f"layer{number}" for number in range(60 - len(worst), 60)}
    assert len(find_parts(draw_gradients(errors))) == len(worst) < len(errors)


NUMBERS = st.floats() | st.sampled_from([0.0, 1e-320, 1e308, -1.0, math.nan, math.inf])
CURVE = st.lists(NUMBERS, max_size=6).map(tuple)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, phases=[Phase.generate])
@given(
    st.builds(Curves, CURVE, CURVE, CURVE, CURVE, CURVE, CURVE, CURVE),
    st.dictionaries(st.text(max_size=60), st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=4),
)
def test_any_numbers_give_pictures_that_can_be_drawn(curves, errors):
    drawn = [draw_losses(curves), draw_loss_distances(curves), draw_gradients(errors), draw_rates(curves)]

    for picture in filter(None, drawn):
        ElementTree.fromstring(picture)
        assert not re.search(r' (?:d|x|y|points)="[^"]*(?:nan|inf)', picture)
