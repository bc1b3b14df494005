"""A picture is a PNG, and needs an extra that is named where it is missing."""

from __future__ import annotations

import sys

import pytest

from porting.bench.charts import write_png
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
