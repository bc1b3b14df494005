"""What a command writes as a page a notebook shows as a part of itself, loaded when it is asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from porting.bench.report import BenchReport
from porting.check.report import Report
from porting.diagnostics import Finding, PortingError
from porting.planning import Plan
from porting.support.late_pages import show_as_page
from porting.verify import Certificate
from tests.verify.certificates import make_certificate


class Shown:
    _repr_html_ = show_as_page("tests.support.test_late_pages:write_shown")

    def __str__(self):
        return "a < b"


def write_shown(_shown):
    raise PortingError.of("X001", help="install it")


def test_an_object_whose_page_needs_a_missing_extra_is_shown_as_text():
    assert "<pre>a &lt; b</pre>" in Shown()._repr_html_()


def test_a_report_is_shown_as_its_page():
    shown = Report([Finding("L002")], program="train.py")._repr_html_()

    assert "Between <code>train.py</code> and an IPU" in shown
    assert "<html" not in shown


def test_a_certificate_is_shown_as_its_page():
    pytest.importorskip("jinja2")

    assert "next to plain PyTorch</h1>" in make_certificate()._repr_html_()


@pytest.mark.parametrize("kind", [Report, Certificate, Plan, BenchReport])
def test_all_that_is_looked_at_has_a_page(kind):
    assert callable(kind._repr_html_)


def test_importing_a_report_loads_no_maker_of_pages():
    program = "import sys; from porting.check.report import Report; print('porting.support.html_pages' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
