"""A page needs nothing but itself, and nothing of a user's text acts on it."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from html import escape

import pytest

from porting.bench.html_page import write_html, write_result_page
from porting.bench.pages import iter_facts, list_step_rows
from porting.bench.tables import Table
from porting.diagnostics import PortingError

from .conftest import make_record, results_of
from .test_charts import make_limits
from .test_curve import make_curve
from .test_growth import make_case

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

HOSTILE = "<script>alert('x')</script>&\"'"


def test_a_page_needs_nothing_else(report):
    page = write_html(results_of(make_record(report=report, demanded=2.0), make_record(name="other")))

    assert not re.search(r'(src|href)="[^#]', page)
    assert "tiny" in page


def test_a_page_shows_users_text_and_does_not_run_it(report):
    records = [
        make_record(name=HOSTILE, report=report),
        make_record(name=HOSTILE, status="failed", reason=HOSTILE),
    ]

    page = write_html(results_of(*records), comparison=Table(HOSTILE, [(HOSTILE,)], [HOSTILE]))

    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_picture_in_a_page_is_well_formed(report):
    page = write_html(results_of(make_record(name=HOSTILE, report=report, demanded=2.0)))

    picture = ElementTree.fromstring(re.search(r"<svg.*?</svg>", page, re.DOTALL)[0])
    assert [part.get("class") for part in picture.iter() if part.get("class")] == ["case-0"]


def test_a_run_without_any_result_is_a_page_too():
    assert "No case has a result" in write_html(results_of(make_record()))


def test_a_page_shows_the_time_to_n_steps_where_it_was_measured(report):
    record = make_record(name=HOSTILE, report=report)
    record["result"]["curve"] = make_curve(engines=("replay", HOSTILE))

    page = write_html(results_of(make_record(report=report), record))

    assert page.count("<svg") == 2
    assert "Time to N steps" in page
    assert "<script>" not in page


def test_tables_of_growth_have_the_rows_that_are_printed(report):
    steep = [make_case(1e-3 * layers**2, name="<b>", layers=layers) for layers in (2, 4, 8)]
    records = [make_record(report=report) for _case in steep]
    for record, case in zip(records, steep):
        record.update(name=case["name"], choices=case["choices"])
        record["result"]["machinery"] = case["result"]["machinery"]

    page = write_html(results_of(*records))

    assert "&lt;b&gt; replay" in page
    assert re.search(r'<td[^>]*>2.00</td><td class="no"[^>]*>above linear</td>', page)
    assert "Growth" not in write_html(results_of(*records[:1]))


def test_the_pictures_of_a_page_stand_before_its_tables(report):
    record = make_record(report=report)
    record["result"].update(curve=make_curve(engines=("replay", "aot")), limits=make_limits())

    headings = re.findall("<h2>(.*?)</h2>", write_html(results_of(record)))

    assert headings == ["Speed-up over eager", "What the machine allows", "Time to N steps", "Figures", "Details"]


def test_a_cell_says_what_of_where_its_header_is_not_shown(report):
    page = write_html(results_of(make_record(report=report)))

    assert re.search(r'<td data-of="speed-up \(95 %\)">\d', page)


def test_without_jinja2_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)

    with pytest.raises(PortingError, match=r"ipu-porting\[bench\]"):
        write_html(results_of(make_record()))


def test_a_page_shows_growth_where_there_are_sizes_enough(report):
    records = [make_record(report=report) for _size in range(3)]
    for size, record in enumerate(records, start=1):
        record["choices"] = {**record["choices"], "layers": size}
        record["result"]["machinery"] = {**record["result"]["machinery"], "plan_seconds": 1e-3 * size}

    page = write_html(results_of(*records))

    assert "growth with layers: tiny replay" in page
    assert "linear</td>" in page


def test_the_details_of_a_case_are_the_rows_of_its_page(report):
    page = write_html(results_of(make_record(report=report), make_record(status="failed", reason="no data")))

    plain = report.to_dict()
    told = [text for _title, text in iter_facts(plain)] + [text for row in list_step_rows(plain) for text in row]
    assert [text for text in told if escape(text) not in page] == []
    assert "failed: no data" in page


def test_the_page_of_one_workload_tells_its_times_and_facts(report):
    page = write_result_page(report)

    assert "<th>eager</th>" in page
    assert report.name in page
    assert not re.search(r'(src|href)="[^#]', page)


def test_a_notebook_shows_a_report_as_that_page(report):
    assert "<th>eager</th>" in report._repr_html_()
