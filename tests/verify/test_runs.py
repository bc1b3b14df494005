"""Curves for plots: the losses and rates of each step, gaps where none is known, and the band of all runs."""

from __future__ import annotations

import math

from porting.verify.records import Record
from porting.verify.runs import Runs


def record(*losses, rates=None):
    steps = enumerate(losses, 1)
    return Record({step: list(each) for step, each in steps}, dict(enumerate(rates or [], 1)))


def make_curves(plain, ported, reference, runs):
    return Runs(1e-7, plain, ported, runs, reference).make_curves()


def test_a_curve_has_the_mean_loss_of_each_step():
    curves = make_curves(record([1.0, 3.0], [1.0]), record([2.0], [1.5]), None, [])

    assert curves.plain == (2.0, 1.0)
    assert curves.ported == (2.0, 1.5)
    assert curves.reference == ()


def test_a_step_without_a_loss_is_a_gap():
    curves = make_curves(record([1.0], [1.0]), record([], [1.0]), None, [])

    assert math.isnan(curves.ported[0])
    assert curves.ported[1] == 1.0


def test_the_band_bounds_all_runs():
    runs = [record([0.5], [4.0]), record([2.0])]

    curves = make_curves(record([1.0], [3.0]), record([1.0]), record([1.0]), runs)

    assert curves.lowest == (0.5, 3.0)
    assert curves.highest == (2.0, 4.0)
    assert curves.reference == (1.0,)


def test_rates_are_those_of_the_first_group():
    curves = make_curves(record([1.0], [1.0], rates=[[0.1, 7.0], [0.05]]), record(), None, [])

    assert curves.plain_rates == (0.1, 0.05)
    assert curves.ported_rates == ()
