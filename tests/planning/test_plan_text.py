"""A plan as text: what it says, and how wide it is."""

from __future__ import annotations

import pytest

from porting.planning.plan_text import NAMES, format_change, format_mb, format_scaling
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


def test_of_many_ipus_the_fullest_are_shown():
    planned = plan_stack(2048, 12, ipus=8)
    (header,) = (line for line in str(planned).splitlines() if line.startswith("MiB"))

    assert f"IPU {planned.fullest.ipu}" in header
    assert "these are the fullest 5 of 8 IPUs" in str(planned)
    assert max(map(len, header.splitlines())) <= 80


def test_what_does_not_fit_has_no_speed_before_or_after_a_change():
    before, after = plan_stack(4096, 6, ipus=1), plan_stack(4096, 6, ipus=4)
    (row,) = (line.split() for line in format_change(before, after).splitlines() if line.startswith("samples"))

    assert row == ["samples", "a", "second", "-", f"{after.forecast.samples_per_second:,.0f}"]


@pytest.mark.parametrize(
    ("pays_up_to", "text"),
    [
        (1, "a second replica does not pay: both train less than 1.5 times as many samples"),
        (8, "up to 8 replicas, each doubling trains at least 1.5 times as many samples"),
    ],
)
def test_the_replicas_that_pay_are_told_in_a_sentence(pays_up_to, text):
    class Scaled:
        pass

    Scaled.pays_up_to = pays_up_to

    assert format_scaling(Scaled) == text


def test_what_no_remedy_makes_fit_says_so():
    enough, too_little = plan_stack(4096, 6, ipus=1), plan_stack(16384, 24, machine="bow-pod4")

    assert "that is not enough" not in str(enough)
    assert "that is not enough: no remedy is left" in str(too_little)
