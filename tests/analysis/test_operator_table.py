"""The table of the device's operators is data of one version, and says what helps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from porting.analysis import operator_table
from porting.analysis.operator_table import DEFAULT_VERSION, read_function_table, read_operator_table
from porting.remedies import list_substitutes

FILE = Path(operator_table.__file__).with_name(f"operators-{DEFAULT_VERSION}.json")
TABLE = read_operator_table()


def test_the_file_says_whose_operators_they_are():
    data = json.loads(FILE.read_text(encoding="utf-8"))

    assert (data["format"], data["software"]) == (1, "PopTorch 3.4")


@pytest.mark.parametrize("entries", [TABLE.operators, read_function_table()], ids=["operators", "functions"])
def test_every_entry_has_a_known_status(entries):
    assert {entry.status for entry in entries.values()} == {"supported", "partial", "unsupported"}


@pytest.mark.parametrize(("name", "is_lacking"), [("lgamma", True), ("relu", False), ("never_heard_of", False)])
def test_an_operator_is_lacking_where_the_table_says_so(name, is_lacking):
    assert TABLE.is_lacking(name) is is_lacking


def test_a_refused_form_has_a_remedy_of_its_own():
    assert "one layer after the other" in TABLE.find_remedy("lstm", "Only LSTM with 1 layer is supported")


def test_an_operator_that_nothing_is_known_of_has_no_remedy():
    assert TABLE.find_remedy("never_heard_of") == ""


@pytest.mark.parametrize("name", ["xlogy", "heaviside", "diagonal", "quantile"])
def test_what_ports_compute_by_others_has_a_substitute(name):
    targets = {getattr(entry.target, "__name__", "") for entry in list_substitutes()}

    assert TABLE.is_computed_in_ports(name)
    assert name in targets


def test_a_version_without_a_table_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"operators-1\.0\.json"):
        read_operator_table("1.0")
