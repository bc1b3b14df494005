"""What many messages say is worded once."""

from __future__ import annotations

import pytest

from porting.diagnostics import align_columns, join_names


@pytest.mark.parametrize(
    ("names", "most", "text"),
    [
        ([], None, ""),
        (["a"], 1, "`a`"),
        (["a", "b"], 1, "`a` and 1 more"),
        ((name for name in "abc"), None, "`a`, `b`, `c`"),
    ],
)
def test_names_that_are_not_shown_are_counted(names, most, text):
    assert join_names(names, most=most) == text


def test_lines_of_a_table_have_no_blanks_at_their_ends():
    assert align_columns([("name", "state"), ("a", "ok"), ("b", "")]) == ["name  state", "a     ok", "b"]


def test_a_table_without_rows_has_no_lines():
    assert align_columns([]) == []
