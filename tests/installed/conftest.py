"""Fixtures of installs: a clone to install from."""

from __future__ import annotations

import pytest

from tests.installed.environments import copy_clone


@pytest.fixture(scope="session")
def clone(tmp_path_factory):
    """Give a copy of this clone."""
    return copy_clone(tmp_path_factory.mktemp("installed") / "clone")
