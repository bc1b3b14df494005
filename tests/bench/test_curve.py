"""The times of several processes become medians, ratios, and the step from which on the port is ahead."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from porting.bench.curve import Curve, allow_seconds, list_curves, list_marks, make_curve_table, sum_up_side
from porting.bench.tables import lay_out_tables

from .conftest import make_record


def run_of(*call_seconds: float, **more) -> dict:
    return {"call_seconds": list(call_seconds), "cpu_seconds": 1.0, **more}


def test_marks_are_calls_where_a_call_is_several_steps():
    assert list_marks(steps_per_call=100) == [100, 200, 500, 1000, 2000, 5000, 10_000]


def test_a_call_of_more_steps_than_any_mark_is_looked_at_once():
    assert list_marks(steps_per_call=20_000) == [20_000]


def test_times_are_medians_with_their_extent_and_ratios_are_those_of_the_rounds():
    eager, ported = [run_of(2.0), run_of(4.0), run_of(9.0)], [run_of(1.0), run_of(1.0), run_of(3.0)]

    side = sum_up_side(ported, eager, [1], steps_per_call=1)

    assert (side.seconds[0].median, side.seconds[0].low, side.seconds[0].high) == (1.0, 1.0, 3.0)
    assert (side.ratios[0].median, side.ratios[0].low, side.ratios[0].high) == (3.0, 2.0, 4.0)


@pytest.mark.parametrize(
    ("ported", "ahead_from"),
    [([0.5, 1.5, 2.5], 1), ([5.0, 5.1, 2.9], 3), ([0.5, 2.5, 2.9], 3), ([0.5, 1.5, 3.0], None)],
)
def test_ahead_is_who_stays_ahead(ported, ahead_from):
    side = sum_up_side([run_of(*ported)], [run_of(1.0, 2.0, 3.0)], [1, 2], steps_per_call=1)

    assert side.ahead_from == ahead_from


def test_steps_are_counted_where_a_call_is_several():
    side = sum_up_side([run_of(5.0, 5.5)], [run_of(3.0, 6.0)], [100, 200], steps_per_call=100)

    assert (side.ahead_from, side.behind_steps, side.num_steps) == (200, 100, 200)


def test_who_is_never_behind_has_no_worst_moment():
    side = sum_up_side([run_of(0.5)], [run_of(1.0)], [1], steps_per_call=1)

    assert (side.behind_seconds, side.behind_steps) == (None, None)


def test_the_demand_looks_at_every_call_and_not_only_at_the_marks():
    eager = run_of(1.0, 2.0, 3.0, 4.0)

    side = sum_up_side([run_of(1.0, 2.0, 2 * allow_seconds(3.0), 4.0)], [eager], [1, 2], steps_per_call=1)

    assert side.demand_share == pytest.approx(2.0)


def test_a_process_that_was_given_up_leaves_the_later_marks_open():
    side = sum_up_side([run_of(1.0, 2.0), run_of(1.0)], [run_of(1.0, 2.0)] * 2, [1, 2], steps_per_call=1)

    assert side.seconds[1] is None
    assert side.num_steps == 1


def test_the_engines_of_each_process_stay_apart():
    engines = [[{"name": "replay", "call": 1, "seconds": 0.1}, {"name": "aot", "call": 3, "seconds": 0.5}], []]
    runs = [run_of(1.0, engines=of_run) for of_run in engines]

    side = sum_up_side(runs, [run_of(1.0)] * 2, [10], steps_per_call=10)

    assert [[engine["steps"] for engine in run] for run in side.engines] == [[10, 30], []]


# -- tables ------------------------------------------------------------------------------------------------------------


def lay(curve: dict) -> list:
    """Lay out the table of a curve as lines."""
    return list(lay_out_tables([make_curve_table(curve)]))


def make_curve(*, cold=(4.0, 4.5, 5.0, 5.5, 6.0), engines=("replay",)) -> dict:
    """Make a curve of two processes a side, as result files have it."""
    eager, warm = [1.0, 2.0, 3.0, 4.0, 5.0], [1.1, 1.9, 2.5, 3.0, 3.5]
    changes = [{"name": name, "call": place + 1, "seconds": 1.0 + place} for place, name in enumerate(engines)]
    runs = {
        name: [{"call_seconds": list(of_side), "cpu_seconds": 1.0, "cache": "miss", "engines": changes}] * 2
        for name, of_side in {"eager": eager, "cold": cold, "warm": warm}.items()
    }
    sides = [sum_up_side(runs[name], runs["eager"], [1, 2, 5], steps_per_call=1) for name in runs]
    return asdict(Curve((1, 2, 5), 2, *sides))


def test_each_number_of_steps_has_a_row_with_times_and_ratios():
    rows = [line.split() for line in lay(make_curve())]

    assert ["2", "2.00", "s", "4.50", "s", "0.44", "(0.44-0.44)", "1.90", "s", "1.05", "(1.05-1.05)"] in rows


def test_it_is_told_who_is_ahead_and_who_was_too_far_behind():
    text = "\n".join(lay(make_curve()))

    assert "cold          ahead not within 5 steps; 3.00 s behind at most, after 1 step(s)" in text
    assert "warm          ahead from step 2 on; 100 ms behind at most, after 1 step(s)" in text
    assert "behind: no: x2.96 of what is allowed" in text
    assert "behind: yes" in text


def test_an_engine_that_never_changed_is_named_once():
    assert [line.split() for line in lay(make_curve())].count(["engine", "replay"]) == 2


def test_the_moment_at_which_a_process_got_another_engine_is_told():
    text = "\n".join(lay(make_curve(engines=("replay", "aot"))))

    assert "engine in process 2: replay, then aot from step 2 on (after 2.00 s)" in text


def test_marks_that_no_process_has_reached_are_open():
    rows = [line.split() for line in lay(make_curve(cold=(4.0, 4.5)))]

    assert rows[4][:5] == ["5", "5.00", "s", "-", "-"]


def test_cases_without_a_curve_are_left_out(report):
    done = make_record(report=report)
    with_curve = {**done, "name": "other", "result": {**done["result"], "curve": make_curve()}}

    found = list_curves([make_record(), done, with_curve])

    assert [name for name, _curve in found] == ["other"]


def test_a_curve_that_failed_says_why(report):
    failed = asdict(Curve(reason="eager: no such data"))

    assert lay(failed) == ["time to N steps: not measured: eager: no such data"]
