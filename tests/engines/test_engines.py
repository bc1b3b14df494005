"""The table of engines."""

from __future__ import annotations

import pytest

from porting.diagnostics import OptionError
from porting.engines import ENGINES, load_engine


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_each_engine_is_loaded_under_its_name(name):
    assert load_engine(name).name == name


def test_auto_is_one_of_the_engines():
    assert load_engine("auto") in [load_engine(name) for name in ENGINES]


def test_an_unknown_engine_is_refused_with_those_there_are():
    with pytest.raises(OptionError) as caught:
        load_engine("warp")

    assert caught.value.code == "P004"
    assert caught.value.finding.help == (f"use one of: auto, {', '.join(sorted(ENGINES))}",)
