"""A curve as text: a row for each number of steps, who is ahead from where, and which engine ran it."""

from __future__ import annotations

from dataclasses import asdict

from porting.bench.curve import Curve, sum_up_side
from porting.bench.curve_pages import lay_out_curve, lay_out_curves

from .conftest import make_record


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
    rows = [line.split() for line in lay_out_curve(make_curve())]

    assert ["2", "2.00", "s", "4.50", "s", "0.44", "(0.44-0.44)", "1.90", "s", "1.05", "(1.05-1.05)"] in rows


def test_it_is_told_who_is_ahead_and_who_was_too_far_behind():
    text = "\n".join(lay_out_curve(make_curve()))

    assert "cold          ahead not within 5 steps; 3.00 s behind at most, after 1 step(s)" in text
    assert "warm          ahead from step 2 on; 100 ms behind at most, after 1 step(s)" in text
    assert "behind: no: x2.96 of what is allowed" in text
    assert "behind: yes" in text


def test_an_engine_that_never_changed_is_named_once():
    assert [line.split() for line in lay_out_curve(make_curve())].count(["engine", "replay"]) == 2


def test_the_moment_at_which_a_process_got_another_engine_is_told():
    text = "\n".join(lay_out_curve(make_curve(engines=("replay", "aot"))))

    assert "engine in process 2: replay, then aot from step 2 on (after 2.00 s)" in text


def test_marks_that_no_process_has_reached_are_open():
    rows = [line.split() for line in lay_out_curve(make_curve(cold=(4.0, 4.5)))]

    assert rows[4][:5] == ["5", "5.00", "s", "-", "-"]


def test_cases_without_a_curve_are_left_out(report):
    done = make_record(report=report)
    with_curve = {**done, "name": "other", "result": {**done["result"], "curve": make_curve()}}

    lines = list(lay_out_curves([make_record(), done, with_curve]))

    assert lines[1] == "other:"
    assert not any("tiny" in line for line in lines)


def test_a_curve_that_failed_says_why(report):
    failed = asdict(Curve(reason="eager: no such data"))

    assert list(lay_out_curve(failed)) == ["time to N steps: not measured: eager: no such data"]
