"""A job leaves its figures, or the reason why there are none."""

from __future__ import annotations

import sys

import pytest

from porting.bench.children import run_job
from porting.bench.choices import BenchSettings
from porting.bench.processes import Child
from porting.bench.workloads import Source


def test_a_job_that_there_is_not_fails_with_its_name():
    with Child("nothing", {}) as child:
        assert child.wait(60.0) == ("failed", "KeyError: 'nothing'", None)


@pytest.mark.slow
def test_both_sides_start_with_the_same_step():
    source = Source("porting.bench.suite:load", {"name": "mnist_mlp", "choices": {"engine": "replay"}})

    eager, ported = (run_job("start-up", side, source, BenchSettings()) for side in ("eager", "ported"))

    assert ported["loss"] == pytest.approx(eager["loss"], rel=1e-6)
    assert not ported["loads_compiler"]


# -- memory ------------------------------------------------------------------------------------------------------------


def peaks_by_order(name: str, orders) -> dict:
    """Return the peak of a process that trains in each order, over that of `none`."""
    # a call that finds no memory, one that finds what the first gave back, and one that finds it as ever
    task = {"tensors": False, "num_calls": 3}

    def peak(order: str) -> int:
        choices = {"engine": "replay", "order": order}
        source = Source("porting.bench.suite:load", {"name": f"orders_{name}", "choices": choices})
        settings = BenchSettings(threads=1, device="sim")
        return run_job("memory", "ported", source, settings, more=task)["process_peak_bytes"]

    plain = peak("none")
    return {order: peak(order) / plain for order in orders}


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
def test_recomputation_takes_three_quarters_of_the_memory_at_most():
    peaks = peaks_by_order("linear24", ("chen", "gttime", "gtmem", "dummy2"))

    assert all(peaks[order] <= 0.75 for order in ("chen", "gttime", "gtmem"))
    assert peaks["dummy2"] <= 1.0


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the C library is another one")
@pytest.mark.parametrize("name", ["gpt", "uresnet2d"])
def test_no_order_takes_more_than_none(name):
    assert max(peaks_by_order(name, ["chen", "gtmem"]).values()) <= 1.0
