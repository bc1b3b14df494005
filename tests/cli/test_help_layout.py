"""Help fits a terminal, and what fits already stays as it was written."""

from __future__ import annotations

import pytest

from porting.cli.help_layout import HELP_WIDTH, fit_lines

LONG = "word " * 20


@pytest.mark.parametrize("text", ["", "a line\n", "a line\n  $ porting plan\n\nanother", "  name   what it is\n"])
def test_what_fits_stays_as_it_is(text):
    assert fit_lines(text) == text


def test_a_paragraph_with_a_long_line_is_filled_as_a_whole():
    filled = fit_lines(f"first\n{LONG.strip()}\nlast\n\nnext\n")

    assert max(map(len, filled.splitlines())) <= HELP_WIDTH
    assert filled.split() == ["first", *LONG.split(), "last", "next"]
    assert filled.endswith("last\n\nnext\n")


def test_a_long_item_goes_on_under_its_text():
    first, second = fit_lines(f"  name   {LONG}").splitlines()

    assert first.startswith("  name   word")
    assert second.startswith("         word")


def test_a_word_that_is_too_long_by_itself_is_not_broken():
    assert "x" * 100 in fit_lines("  " + "x" * 100).split()
