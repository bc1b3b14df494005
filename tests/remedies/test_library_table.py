"""The table of remedies for libraries: a program's own come last, for a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from porting.diagnostics import OptionError
from porting.remedies.library_table import list_remedies, register_remedy


def test_a_programs_own_remedy_comes_last_and_goes():
    before = list_remedies()
    own = replace(before[0], name="my own")

    with register_remedy(own):
        assert list_remedies() == (*before, own)

    assert list_remedies() == before


def test_a_name_is_given_once():
    with pytest.raises(OptionError, match="already") as caught:
        register_remedy(list_remedies()[0])

    assert caught.value.code == "P002"
