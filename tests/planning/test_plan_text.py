"""A plan as text: what it says, and how wide it is."""

from __future__ import annotations

from porting.planning.plan_text import NAMES, format_change, format_mb
from tests.planning.test_planner import plan_stack


def test_terms_that_are_nothing_are_left_out():
    text = str(plan_stack(64, 2))

    assert NAMES["code_bytes"] in text
    assert NAMES["kept_bytes"] not in text


def test_the_columns_add_up():
    lines = str(plan_stack(2048, 6, ipus=3)).splitlines()
    columns = {
        name: [float(text.replace(",", "")) for text in line.split()[-3:]]
        for line in lines
        for name in (*NAMES.values(), "together")
        if line.startswith(f"{name} ")
    }
    together = columns.pop("together")

    assert all(abs(sum(column) - total) < 1.0 for column, total in zip(zip(*columns.values()), together))


def test_lines_fit_a_terminal():
    assert max(map(len, str(plan_stack(4096, 6, ipus=1)).splitlines())) <= 100


def test_a_change_is_told_by_term_with_both_verdicts():
    before, after = plan_stack(4096, 6, ipus=1), plan_stack(4096, 6, ipus=4)
    text = format_change(before, after)

    assert text.splitlines()[-1] == "before: does not fit; after: fits"
    assert NAMES["optimizer_bytes"] in text


def test_bytes_are_whole_mebibytes():
    assert format_mb(1_500_000_000) == "1,431 MiB"
