"""The page of a certificate is whole, says the verdict first, and shows text as text, whatever is in it."""

from __future__ import annotations

import math
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from porting.diagnostics import Place
from porting.verify.certificate import Curves, Location, PrecisionVerdict, Verdict
from porting.verify.certificate_page import write_certificate_page
from tests.verify.certificates import make_certificate, make_failed

pytest.importorskip("matplotlib")


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

    assert re.findall(r'(?:src|href)="(?!#)', page) == []
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


def test_of_many_gradients_the_worst_are_shown():
    errors = {f"layer.{number}": (number * 1e-9, 1.0, 1e-6) for number in range(100)}

    page = write_certificate_page(make_certificate(gradient_errors=errors))

    assert "layer.99:" in page
    assert "layer.59:" not in page
    assert "60 parameters that fill less of their band are not shown" in page


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


def test_without_matplotlib_the_page_has_no_pictures_and_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)

    page = write_certificate_page(make_certificate())

    assert pictures_of(page) == []
    assert "there are no pictures; " in page
    assert "pip install" in page
    assert "not shown" not in page
