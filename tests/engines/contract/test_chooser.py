"""The chooser of this package is what the contract asks for."""

from __future__ import annotations

import inspect

from porting.engines.contract.chooser import Chooser, load_chooser


def test_the_chooser_takes_what_the_contract_says():
    wanted = [*inspect.signature(Chooser.tune).parameters.values()][1:]

    taken = inspect.signature(load_chooser().tune).parameters

    assert [taken[parameter.name].kind for parameter in wanted] == [parameter.kind for parameter in wanted]
