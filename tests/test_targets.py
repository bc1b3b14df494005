"""What is known of IPUs, as data."""

from __future__ import annotations

import pytest

from porting.diagnostics import OptionError
from porting.targets import DEFAULT, TARGETS, find_target


def test_the_memory_is_that_of_the_vendors_tables():
    assert TARGETS["gc2"].memory_bytes == 318_767_104
    assert TARGETS["gc200"].memory_bytes == TARGETS["bow"].memory_bytes == 940_572_672


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_every_number_has_a_source(target):
    assert len(target.sources) >= 2
    assert TARGETS[target.name] is target


def test_a_target_is_found_in_any_case():
    assert find_target(" Bow ") is TARGETS[DEFAULT]


def test_an_unknown_target_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean `gc200`"):
        find_target("gc20")
