"""The work of a step is counted by torch's formulas, and set against what this machine attains."""

from __future__ import annotations

import dataclasses
import importlib
import re

import pytest

from porting.bench.case_tables import lay_out_table
from porting.bench.eager import EagerSide
from porting.bench.limits import MatmulRate, Rates, Work, count_work, find_limits, measure_rates
from porting.bench.measure import measure

from .conftest import QUICK, make_record, make_workload, results_of

measure_module = importlib.import_module("porting.bench.measure")


def test_a_step_counts_forward_and_backward_and_update():
    work = count_work(EagerSide(make_workload(rows=8)).call)

    # 8 rows through 4 x 6 and 6 x 3: forward, gradients of the weights, and of what the second layer gets
    assert work.matmul_flops == 2 * 8 * (2 * 24 + 3 * 18)
    assert work.convolution_flops == 0
    assert work.num_operators > 10


def test_several_steps_of_a_call_are_shared_out():
    call = EagerSide(make_workload()).call

    assert count_work(call, steps=4).matmul_flops == count_work(call).matmul_flops / 4


def test_the_limit_is_what_takes_longer():
    rates = Rates((MatmulRate(8, 50.0), MatmulRate(16, 100.0)), 100.0, 10.0)

    limits = find_limits(rates, Work(100.0, 100.0, 50.0, 1.0), eager_seconds=10.0, ported_seconds=5.0)

    assert limits.least_seconds == 5.0
    assert (limits.ported.compute, limits.ported.memory) == (0.4, 1.0)
    assert limits.eager.memory == 0.5


def test_every_rate_is_measured():
    rates = measure_rates((16, 32), copied_bytes=2**16)

    assert [rate.size for rate in rates.matmul] == [16, 32]
    assert rates.best_matmul.flops_per_second > 0
    assert min(rates.convolution_flops_per_second, rates.copy_bytes_per_second) > 0


@pytest.fixture
def small_rates(monkeypatch):
    """Let rates be measured with next to nothing."""
    monkeypatch.setattr(measure_module, "measure_rates", lambda: measure_rates((16,), copied_bytes=2**16))


def test_a_report_sets_both_sides_against_the_machine(small_rates, problem_of):
    report = measure(make_workload(), settings=dataclasses.replace(QUICK, limits=True))

    limits = report.limits
    assert limits.work.matmul_flops == 2 * 8 * (2 * 24 + 3 * 18)
    assert limits.eager.compute / limits.ported.compute == pytest.approx(
        report.ported.step_seconds.median / report.eager.step_seconds.median
    )
    assert problem_of(results_of(make_record(report=report))) == ""


def test_the_share_of_the_limit_stands_below_the_steps_of_a_second(small_rates):
    text = str(measure(make_workload(), settings=dataclasses.replace(QUICK, limits=True)))

    assert re.search(r"steps/s .*\n  of this machine's limit +\d+ % +\d+ %\n", text)
    assert "this machine  products of matrices" in text


def test_what_was_not_asked_for_has_a_reason_and_no_column(report):
    assert report.limits.reason == "not asked for"
    assert "limit" not in list(lay_out_table([make_record(report=report)]))[2].split()
