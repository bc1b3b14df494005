"""Pictures of a certificate: what is drawn, what is left out, and what is not finite."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from porting.verify.certificate import Curves
from porting.verify.certificate_pictures import (
    draw_gradients,
    draw_loss_distances,
    draw_losses,
    draw_rates,
    list_worst_gradients,
)

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
