"""A table is the same in text and in a page; titles say what varies, and quantities have few digits."""

from __future__ import annotations

import pytest

from porting.bench.tables import Table, lay_out_tables, name_cases, write_seconds

from .conftest import make_record


def test_a_table_has_its_notes_below():
    table = Table("times", [("side", "time", "verdict"), ("eager", "10 s", "slow")], ["that was all"])

    assert list(lay_out_tables([table])) == ["times", "  side   time  verdict", "  eager  10 s  slow", "  that was all"]


def test_several_tables_are_apart_and_named_where_they_have_names():
    assert list(lay_out_tables([Table("one"), Table("two")])) == ["one", "", "two"]
    assert list(lay_out_tables([Table("one", name="cnn")])) == ["", "cnn:", "one"]


def test_titles_have_only_the_choices_that_vary():
    records = [make_record(), make_record()]
    records[1]["choices"] = {**records[1]["choices"], "batch": 8, "accumulation": 2}

    assert name_cases(records) == ("replay", ["tiny", "tiny batch 8 2 accumulated"])


@pytest.mark.parametrize(
    ("value", "text"), [(9.996e-4, "1.00 ms"), (0.9999, "1.00 s"), (123.4, "123 s"), (1.5e-5, "15.0 us")]
)
def test_durations_have_three_digits(value, text):
    assert write_seconds(value) == text
