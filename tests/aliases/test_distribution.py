"""A module that took a package's name tells its own version in the standard's spelling."""

from __future__ import annotations

import importlib.metadata
import sys
import types

import pytest

from porting.aliases.distribution import AliasedDistribution


@pytest.mark.parametrize(("version", "standard"), [("3.4.0-simulator", "3.4.0+simulator"), ("3.4.0", "3.4.0")])
def test_the_version_is_the_modules(monkeypatch, version, standard):
    module = types.ModuleType("versioned")
    module.__version__ = version
    monkeypatch.setitem(sys.modules, "versioned", module)

    distribution = AliasedDistribution("vendor", "versioned")

    assert (distribution.version, distribution.metadata["Name"]) == (standard, "vendor")


def test_it_has_no_files():
    distribution = AliasedDistribution("vendor", "torch")

    assert isinstance(distribution, importlib.metadata.Distribution)
    assert distribution.files is None
    assert distribution.read_text("RECORD") is None
