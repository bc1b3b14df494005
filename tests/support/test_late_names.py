"""Public names that are loaded on first use follow from the imports for type checkers."""

from __future__ import annotations

import fractions

import pytest

from porting.support.late_names import read_late_names

SOURCE = """
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction as Fraction
    from decimal import Decimal
    from asyncio import events
"""


@pytest.fixture
def namespace(tmp_path):
    path = tmp_path / "__init__.py"
    path.write_text(SOURCE, encoding="utf-8")
    return {"__name__": "asyncio", "__file__": str(path)}


def test_a_name_is_public_that_is_imported_as_itself(namespace):
    public, _load, list_names = read_late_names(namespace)

    assert public == ["Fraction"]
    assert list_names() == ["Fraction", "__file__", "__name__"]


def test_a_public_name_is_loaded_and_kept(namespace):
    _public, load, _list_names = read_late_names(namespace)

    assert load("Fraction") is namespace["Fraction"] is fractions.Fraction


def test_another_name_can_be_had_and_is_listed_nowhere(namespace):
    _public, load, list_names = read_late_names(namespace)

    assert load("Decimal").__name__ == "Decimal"
    assert "Decimal" not in list_names()


def test_a_name_from_the_package_itself_is_a_module_of_it(namespace):
    _public, load, _list_names = read_late_names(namespace)

    assert load("events").__name__ == "asyncio.events"


def test_an_unknown_name_is_an_attribute_error(namespace):
    _public, load, _list_names = read_late_names(namespace)

    with pytest.raises(AttributeError, match="module 'asyncio' has no attribute 'Float'"):
        load("Float")
