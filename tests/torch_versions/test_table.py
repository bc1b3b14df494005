"""The table of what works with which torch is written from a run, and its page shows it."""

from __future__ import annotations

import json

import pytest

from porting.support import torch_versions
from porting.support.torch_versions import PartResult, find_tested, list_tested
from tests.torch_versions.environment import ROOT
from tests.torch_versions.table import make_table, write_tested

PASSED = PartResult(passed=3, failed=0)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with the table of a single tested version."""
    file = tmp_path / "versions.json"
    file.write_text(json.dumps({"2.6.0": {"capture": {"passed": 2, "failed": 1}}}))
    monkeypatch.setattr(torch_versions, "FILE", file)
    page = tmp_path / "versions.md"
    page.write_text(f"before\n\n{make_table()}\n\nafter\n")
    return page


def test_what_a_run_said_stands_in_the_place_of_what_was_known(page):
    write_tested("2.6.0", {"capture": PASSED}, page=page)

    assert [torch.by_part for torch in list_tested()] == [{"capture": PASSED}]


def test_the_other_versions_stay(page):
    before = find_tested("2.6.0")

    write_tested("2.10.0", {"aot": PASSED}, page=page)

    assert list_tested() == [before, find_tested("2.10.0")]


def test_the_page_shows_the_table_as_it_is_now(page):
    write_tested("2.10.0", {"capture": PASSED, "replay": PASSED}, page=page)

    assert page.read_text() == f"before\n\n{make_table()}\n\nafter\n"
    assert "| 2.10.0 | yes | yes | no | no | no |" in make_table()


def test_versions_with_the_same_results_share_a_row(page):
    write_tested("2.6.0", {"capture": PASSED}, page=page)
    write_tested("2.7.1", {"capture": PASSED}, page=page)

    assert "| 2.6.0, 2.7.1 | yes | no | no | no | no |" in make_table()


def test_the_page_of_versions_shows_the_table():
    assert make_table() in (ROOT / "docs/torch-versions.md").read_text("utf-8")
