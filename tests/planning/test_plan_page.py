"""A plan as a page: one file, with all that the text says."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from tests.planning.test_planner import plan_stack

pytest.importorskip("jinja2", reason="needs the extra `bench`")


class Links(HTMLParser):
    """Collects what a page would load."""

    def __init__(self):
        super().__init__()
        self.loaded, self.labels = [], []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.loaded += [found[name] for name in ("src", "href") if name in found]
        self.labels += [found["aria-label"]] if tag == "i" and "aria-label" in found else []


@pytest.fixture(scope="module")
def page():
    from porting.planning.plan_page import write_plan_page

    return write_plan_page(plan_stack(4096, 6), "train.py:make")


def test_a_page_loads_nothing(page):
    links = Links()
    links.feed(page)

    assert links.loaded == []


def test_each_part_of_a_bar_says_its_number(page):
    links = Links()
    links.feed(page)

    assert any("IPU 3, optimizer state: " in label for label in links.labels)
    assert any("stage 0, round 1: micro-batch 1 forward" in label for label in links.labels)


def test_a_page_has_verdict_stages_and_speed(page):
    assert all(text in page for text in ("fits", "layers.", "samples a second", "replicas"))


def test_what_does_not_fit_has_its_remedies():
    from porting.planning.plan_page import write_plan_page

    assert "What helps, in this order" in write_plan_page(plan_stack(4096, 6, ipus=1), "train.py:make")


def test_a_name_is_no_markup():
    from porting.planning.plan_page import write_plan_page

    assert "<b>me" not in write_plan_page(plan_stack(), "<b>me</b>.py:make")
