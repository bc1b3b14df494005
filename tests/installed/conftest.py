"""Fixtures of installs: a clone to install from, and its wheel."""

from __future__ import annotations

import pytest

from tests.installed.environments import build_wheel, copy_clone


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """Give a copy of this clone."""
    return copy_clone(tmp_path_factory.mktemp("installed") / "clone")


@pytest.fixture(scope="session")
def wheel(clone, tmp_path_factory):
    """Give the wheel of this clone."""
    return build_wheel(clone, tmp_path_factory.mktemp("wheel"))
