"""The simulator has PopTorch's names, signatures, values and bases; what it lacks is known by name, with a reason."""

from __future__ import annotations

import enum

import pytest

import porting.simulator as simulator

from . import coverage_page
from .surface import SURFACE, Entry, difference, entries, find, missing_bases

# Names that are refused with S001, each with the reason why.
NOT_SIMULATED = {}


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.path)
def test_the_simulator_has_the_name_as_poptorch_has_it(entry: Entry):
    assert difference(entry) == ("not simulated" if entry.path in NOT_SIMULATED else None)


def test_classes_have_the_bases_of_poptorchs():
    assert list(missing_bases()) == []


@pytest.mark.parametrize("path", SURFACE["enums"])
def test_enumerations_have_no_further_members(path):
    assert list(find(path).__members__) == list(SURFACE["enums"][path])


@pytest.mark.parametrize("name", ["MatMulSerializationMode", "OverlapMode"])
def test_enumerations_with_texts_are_no_numbers(name):
    assert not issubclass(getattr(simulator, name), enum.IntEnum)


@pytest.mark.parametrize("name", ["enums", "ops", "options"])
def test_names_of_the_star_imported_modules_are_names_of_the_package(name):
    module = getattr(simulator, name)

    assert [name for name in module.__all__ if not hasattr(simulator, name)] == []


def test_the_core_has_an_error_for_each_origin():
    assert list(simulator.poptorch_core.TestErrorType.__members__) == SURFACE["test_errors"]


def test_a_difference_is_seen():
    differences = [
        difference(Entry("poptorch.OutputMode.Sum", "member of an enumeration", 7)),
        difference(Entry("poptorch.trainingModel", "function", "(model)")),
        difference(Entry("poptorch.ATTR_PREFIX", "value", "other:")),
        difference(Entry("poptorch.wibble", "function")),
        difference(Entry("poptorch.Options.wibble", "member of a class")),
    ]

    assert differences == [
        "is 3, not 7",
        "is (model, options=None, optimizer=None), not (model)",
        "is 'attr:', not 'other:'",
        "missing",
        "missing",
    ]


def test_the_page_of_coverage_is_up_to_date():
    assert coverage_page.PAGE.read_text("utf-8") == coverage_page.render(), "run `make coverage-page`"
