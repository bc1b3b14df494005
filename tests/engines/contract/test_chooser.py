"""The chooser of this package is what the contract asks for."""

from __future__ import annotations

import inspect

import pytest

from porting.engines.contract.chooser import Chooser, load_chooser


@pytest.mark.parametrize("name", ["compare_with_replay", "tune"])
def test_the_chooser_takes_what_the_contract_says(name):
    wanted = [*inspect.signature(getattr(Chooser, name)).parameters.values()][1:]

    taken = inspect.signature(getattr(load_chooser(), name)).parameters

    assert [taken[parameter.name].kind for parameter in wanted] == [parameter.kind for parameter in wanted]
