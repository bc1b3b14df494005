"""A picture is a PNG, and needs an extra that is named where it is missing."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

from porting.bench.charts import write_html, write_png
from porting.diagnostics import PortingError

from .conftest import make_record, results_of


def test_a_picture_is_a_png(report, tmp_path):
    pytest.importorskip("matplotlib")
    records = [make_record(report=report, demanded=2.0), make_record(name="not run")]

    write_png(results_of(*records), tmp_path / "picture.png")

    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_extra_is_named(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(PortingError, match=r"ipu-porting\[bench\]"):
        write_png(results_of(make_record(report=report)), tmp_path / "picture.png")


HOSTILE = "<script>alert('x')</script>&\"'"


def test_a_page_needs_nothing_else(report):
    page = write_html(results_of(make_record(report=report, demanded=2.0), make_record(name="other")))

    assert not re.search(r"(src|href)=", page)
    assert "tiny" in page


def test_a_page_shows_users_text_and_does_not_run_it(report):
    records = [
        make_record(name=HOSTILE, report=report),
        make_record(name=HOSTILE, status="failed", reason=HOSTILE),
    ]

    page = write_html(results_of(*records), comparison=[HOSTILE])

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_picture_in_a_page_is_well_formed(report):
    page = write_html(results_of(make_record(name=HOSTILE, report=report, demanded=2.0)))

    picture = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])
    assert len(picture.findall("g")) == 1


def test_a_run_without_any_result_is_a_page_too():
    assert "No cell has a result" in write_html(results_of(make_record()))
