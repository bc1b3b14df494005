"""Codes are chosen by number, slug and family, and a name that is none is refused with those near it."""

from __future__ import annotations

import pytest

from porting.check.selection import Selection, UnknownCodeError, read_codes


@pytest.mark.parametrize(
    ("texts", "codes"),
    [
        ([], ()),
        (["L001"], ("L001",)),
        (["host-read, l"], ("C001", "L")),
        (["B", "C02"], ("B", "C02")),
        (["O007,"], ("O007",)),
    ],
)
def test_names_are_read(texts, codes):
    assert read_codes(texts) == codes


@pytest.mark.parametrize(("name", "advice"), [("host-raed", "did you mean host-read"), ("Z", "families are L, C, O")])
def test_a_name_that_is_none_is_refused(name, advice):
    with pytest.raises(UnknownCodeError, match=advice):
        read_codes([name])


@pytest.mark.parametrize(
    ("selection", "included"),
    [
        (Selection(), {"L001", "L002", "C001"}),
        (Selection(selected=("L",)), {"L001", "L002"}),
        (Selection(selected=("L",), ignored=("L002",)), {"L001"}),
        (Selection(ignored=("L", "C")), set()),
        (Selection(selected=("L002", "C")), {"L002", "C001"}),
    ],
)
def test_what_is_ignored_is_not_selected(selection, included):
    assert {code for code in ("L001", "L002", "C001") if selection.includes(code)} == included
