"""What tests of stand-ins share: an environment without launchers, and aliases that are gone afterwards."""

from __future__ import annotations

import os
import sys

import pytest

from porting.aliases import COMPANIONS
from porting.simulator import companions


@pytest.fixture(autouse=True)
def provided(monkeypatch):
    """Let each test import the stand-ins by the names that programs use, as the only process of its program."""
    for name in list(os.environ):
        if name.startswith(("POPDIST_", "OMPI_")) or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PORTING_STAND_INS", " ".join(COMPANIONS))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = set(sys.modules)
    companions.provide()
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in COMPANIONS:
            del sys.modules[name]
