"""The table of codes is complete, orderly and read-only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Set

import pytest

import porting
from porting.diagnostics import CODES, Severity, find_code
from porting.diagnostics.codes import FAMILIES

PACKAGE = Path(porting.__file__).parent

# Codes that have a page and a number but that nothing finds so far.
NOT_RAISED_YET: Set[str] = set()


def test_codes_stand_in_the_order_of_their_families_and_numbers():
    in_order = sorted(CODES, key=lambda code: (list(FAMILIES).index(code[0]), int(code[1:])))

    assert list(CODES) == in_order


def test_the_numbers_of_a_family_have_no_gaps_except_before_a_new_ten():
    numbers = {letter: [int(code[1:]) for code in CODES if code.startswith(letter)] for letter in FAMILIES}
    gaps = [
        f"{letter}{number:03}"
        for letter, found in numbers.items()
        for number in found
        if number - 1 not in [0, *found] and number % 10
    ]

    assert gaps == []


def test_no_two_codes_have_the_same_slug():
    slugs = [code.slug for code in CODES.values()]

    assert len(set(slugs)) == len(slugs)


def test_the_key_of_a_code_is_its_own_code():
    assert [code.code for code in CODES.values()] == list(CODES)


@pytest.mark.parametrize("code", CODES.values(), ids=str)
def test_a_slug_is_lower_case_words_joined_by_hyphens(code):
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z]+)*", code.slug)


@pytest.mark.parametrize("code", CODES.values(), ids=str)
def test_a_title_reads_as_a_message_without_a_full_stop(code):
    assert re.fullmatch(r"[`a-zA-Z].*[^.!]", code.title)
    assert code.title.split()[0].strip("`").islower() or code.title.startswith("a CPU")


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError, match="does not support item assignment"):
        CODES["L001"] = CODES["L002"]


def test_every_code_is_raised_by_something():
    sources = [path for path in PACKAGE.rglob("*.py") if "diagnostics" not in path.parts]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)

    assert {code for code in CODES if f'"{code}"' not in text} == NOT_RAISED_YET


def test_only_a_few_codes_are_not_errors():
    milder = {code.code for code in CODES.values() if code.severity is not Severity.ERROR}

    assert milder == {
        "B006",
        "B008",
        "B014",
        "B015",
        "B016",
        "B017",
        "B018",
        "B019",
        "B020",
        "B021",
        "B030",
        "B031",
        "B032",
        "C011",
        "C019",
        "C020",
        "C021",
        "C022",
        "C023",
        "C024",
        "C025",
        "C026",
        "D002",
        "D005",
        "D010",
        "D012",
        "D013",
        "D014",
        "D016",
        "D018",
        "D020",
        "E001",
        "E002",
        "E003",
        "E004",
        "E005",
        "E006",
        "E007",
        "E008",
        "E011",
        "E012",
        "E013",
        "E014",
        "E015",
        "K003",
        "K004",
        "K005",
        "K007",
        "L008",
        "L013",
        "M001",
        "O007",
        "O008",
        "O009",
        "O010",
        "O011",
        "O013",
        "O014",
        "O016",
        "P003",
        "P006",
        "P011",
        "C041",
        "C044",
        "C045",
        "C046",
        "C042",
        "L020",
        "P012",
        "P013",
        "P020",
        "P021",
        "X005",
        "X006",
        "X008",
        "X013",
        "X016",
        "X017",
        "X018",
        "X020",
        "X021",
        "X022",
        "X023",
        "X024",
    }


@pytest.mark.parametrize("name", ["C001", "c001", " host-read ", "Host-Read"])
def test_find_code_takes_code_or_slug_in_any_case(name):
    assert find_code(name) is CODES["C001"]


@pytest.mark.parametrize("name", ["", "C", "C9", "host"])
def test_find_code_of_anything_else_is_none(name):
    assert find_code(name) is None
