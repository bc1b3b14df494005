"""Releases of PopTorch that ports are tested with."""

from __future__ import annotations

import pytest

from porting.support.poptorch_releases import TESTED_RELEASES, loses_freezing, name_release


@pytest.mark.parametrize(("version", "release"), [("3.3.0+113432_960e9c294b", "3.3"), ("3.4", "3.4"), ("3", "3")])
def test_a_release_is_the_first_two_numbers(version, release):
    assert name_release(version) == release


def test_the_newest_release_differs_in_nothing():
    assert TESTED_RELEASES[max(TESTED_RELEASES)] == ""


@pytest.mark.parametrize("release", TESTED_RELEASES)
def test_only_the_release_that_says_so_loses_frozen_parameters(release):
    assert loses_freezing(f"{release}.0") == ("frozen parameter" in TESTED_RELEASES[release])
