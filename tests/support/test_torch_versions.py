"""What is known of a version of torch is what tests said of the nearest one; newer ones are told apart."""

from __future__ import annotations

import json

import pytest

from porting.support import torch_versions
from porting.support.torch_versions import (
    PartResult,
    find_newest_tested,
    find_tested,
    is_newer_than_tested,
    list_tested,
)
from porting.support.versions import read_version

PASSED = {"passed": 7, "failed": 0}
ROWS = {
    "2.10.0": {"capture": PASSED, "aot": {"passed": 6, "failed": 1}},
    "2.6.0": {"capture": PASSED},
    "2.0.1": {"hardware path": PASSED},
}


@pytest.fixture
def few(tmp_path, monkeypatch):
    """Let three versions have been tested."""
    file = tmp_path / "versions.json"
    file.write_text(json.dumps(ROWS))
    monkeypatch.setattr(torch_versions, "FILE", file)


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("2.6.0", "2.6.0"),
        ("2.6.1+cpu", "2.6.0"),
        ("2.9.0", "2.6.0"),
        ("2.10.0a0+git1234567", "2.10.0"),
        ("2.11.0", "2.10.0"),
        ("1.13.1", "2.0.1"),
    ],
)
def test_a_version_is_known_from_the_tested_one_at_or_before_it(few, version, nearest):
    assert find_tested(version).version == nearest


def test_versions_are_in_the_order_of_their_numbers(few):
    assert [torch.version for torch in list_tested()] == ["2.0.1", "2.6.0", "2.10.0"]


@pytest.mark.parametrize(
    ("version", "is_newer"), [("2.9.1", False), ("2.10.2", False), ("2.11.0", True), ("3.0", True)]
)
def test_newer_is_what_has_a_minor_version_after_all_that_were_tested(few, version, is_newer):
    assert find_newest_tested() == (2, 10)
    assert is_newer_than_tested(version) is is_newer


@pytest.mark.parametrize(
    ("version", "part", "says"),
    [("2.6.0", "capture", "yes"), ("2.6.0", "aot", "no"), ("2.10.0", "aot", "1 of 7 tests fail")],
)
def test_a_part_works_where_all_its_tests_passed(few, version, part, says):
    assert find_tested(version).says_of(part) == says
    assert find_tested(version).has(part) is (says == "yes")


def test_large_counts_can_be_read():
    assert str(PartResult(passed=1238, failed=2)) == "2 of 1,240 tests fail"


def test_each_tested_version_is_found_as_itself():
    tested = list_tested()

    assert [find_tested(torch.version) for torch in tested] == tested
    assert sorted(tested, key=lambda torch: read_version(torch.version)) == tested
