"""Parts of a suite are disjoint and together the whole; names are chosen by patterns."""

from __future__ import annotations

import argparse

import pytest

from porting.bench.command_cases import (
    Part,
    choose_cases,
    choose_entries,
    choose_suite,
    find_demanded_mean,
    parse_part,
)
from porting.bench.suite import GROUPS, PUBLIC
from porting.diagnostics import PortingError


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 40])
def test_all_parts_are_the_whole_and_have_nothing_in_common(parts):
    cases = list(range(26))

    chosen = [choose_cases(cases, Part(number, parts)) for number in range(1, parts + 1)]

    assert sorted(case for part in chosen for case in part) == cases
    assert max(map(len, chosen)) - min(map(len, chosen)) <= 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/", "a/b", "1/2/3", "-1/2"])
def test_what_is_no_part_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        parse_part(text)


def test_a_suite_is_all_of_its_workloads():
    entries, _findings = choose_entries("public")

    assert [entry.name for entry in entries] == list(PUBLIC)


def test_names_that_fit_one_of_the_patterns_are_chosen():
    entries, _findings = choose_entries("public", only=["public_mobile*", "*bert"])

    names = [entry.name for entry in entries]
    assert names == [name for name in PUBLIC if name.startswith("public_mobile") or name.endswith("bert")]
    assert len(names) >= 5


def test_a_pattern_that_fits_nothing_is_refused():
    with pytest.raises(PortingError, match="no name fits nothing") as caught:
        choose_entries("suite", only=["nothing"])

    assert caught.value.code == "T002"


def test_a_suite_that_there_is_not_is_refused_with_those_that_there_are():
    with pytest.raises(PortingError, match="there is no suite `publik`") as caught:
        choose_suite("publik")

    assert all(name in caught.value.finding.help[-1] for name in GROUPS)


def test_the_mean_is_asked_of_the_whole_suite_alone():
    whole = len(PUBLIC)

    assert find_demanded_mean("public", num_entries=whole) == 1.4
    assert find_demanded_mean("public", num_entries=whole - 1) is None
    assert find_demanded_mean("train.py:make", num_entries=1) is None
